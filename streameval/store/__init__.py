"""What survives the process: checkpoints of every partition (`checkpoints` is where to begin)."""
