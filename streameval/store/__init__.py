"""What outlives a restart: `checkpoints` of every partition, and the history of panes (`history/`)."""
