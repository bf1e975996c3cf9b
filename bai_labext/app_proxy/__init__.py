"""Streaming reverse proxy from a session's Jupyter server to its apps."""
