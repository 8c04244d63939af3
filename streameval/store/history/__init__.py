"""Panes in one SQLite file, past the memory of the process."""
