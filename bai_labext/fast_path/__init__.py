"""Requests to apps that bypass Jupyter's server."""
