"""The HTTP server itself: connections, limits, access, errors, and the page's files."""
