"""The command line, and the HTTP client of the commands that query a running monitor."""
