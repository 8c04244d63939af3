"""Rows on disk: files mapped into the joiner's table, invisible to everything that reads rows."""
