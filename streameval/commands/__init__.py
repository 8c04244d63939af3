"""What people type: the commands, and the HTTP client of those that ask a running monitor."""
