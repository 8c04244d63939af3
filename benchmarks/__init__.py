"""Benchmarks: every number is a ratio to a rival, or to a limit, measured in the same run. `python -m benchmarks`."""
