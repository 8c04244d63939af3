"""Who is told when a verdict changes, and how."""
