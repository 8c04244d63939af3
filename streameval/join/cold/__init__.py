"""Rows on disk whose labels matured long ago: files that are mapped into the table, invisible to everything that reads rows."""
