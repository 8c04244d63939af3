"""Outgoing data: messages about verdicts, and results and verdicts for other tools."""
