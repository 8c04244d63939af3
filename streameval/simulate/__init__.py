"""Traffic with known truth: for the demo, the tests and the benchmarks. Seeded: the same scenario, the same bytes.

`scenario` says what happens, `traffic` makes the events, `encode` writes them down, `files` and `runner` deliver them.
"""
