"""What leaves the monitor by itself: messages about verdicts, and results and verdicts for other tools."""
