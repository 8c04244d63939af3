"""For whom and why: by user, slice and pClick bucket, and what can be said before labels are mature."""
