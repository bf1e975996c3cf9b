"""Pipelines, their runs, and the loop that runs them."""
