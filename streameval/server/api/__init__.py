"""The routes under /api/v1, and the shapes of their answers."""
