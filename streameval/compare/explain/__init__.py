"""Where and why versions differ: by user, slice and pClick bucket, and preliminary estimates before labels are mature."""
