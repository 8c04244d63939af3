"""Notifications about changes of verdicts."""
