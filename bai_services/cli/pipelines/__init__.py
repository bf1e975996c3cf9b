"""`bai pipeline`: pipelines and their runs."""
