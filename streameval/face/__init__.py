"""What `import streameval` offers: a table in, numbers out, without a config, a broker or a server."""
