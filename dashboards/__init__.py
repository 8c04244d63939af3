"""Four Grafana dashboards as plain JSON, and the program that writes them: `python -m dashboards.make`."""
