"""Checks the error rates of verdicts: a simulated world, false alarms, power and error bars, compared with textbook rules."""
