"""What people set: the tree of settings with its descriptions, and the TOML file it is read from."""
