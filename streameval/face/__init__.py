"""The public Python API (`import streameval`): a table in, numbers out, without a config, a broker or a server."""
