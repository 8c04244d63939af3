"""What outlives a restart: checkpoints, and the history of panes."""
