"""The families of /metrics and the route that serves them."""
