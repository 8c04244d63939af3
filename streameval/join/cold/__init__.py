"""Rows whose labels have long matured, on disk: files that are mapped into the table, so nobody who reads rows knows of them."""
