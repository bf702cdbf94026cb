"""Tables, charts and pages from what was measured, and from nothing else."""
