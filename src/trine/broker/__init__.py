"""The broker: log and queue joined into topics, groups and schedules; the embedded library.

`aio` is the public interface, written once as async methods; `sync` is generated from it. Both are thin:
everything they do is decided in `engine` and the nouns beside it, under one lock, without waiting.
"""
