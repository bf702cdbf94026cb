"""A package, so that what its tests share ends with the last of them: Playwright keeps an event loop of its own running
in this thread, and tests that come later have theirs."""
