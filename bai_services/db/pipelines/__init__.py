"""Stores of pipelines and of their runs."""
