"""Benchmarks: every number is a ratio against a rival or a limit measured in the same run. `python -m benchmarks`."""
