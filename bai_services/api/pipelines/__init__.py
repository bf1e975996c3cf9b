"""Routes of pipelines and of their runs."""
