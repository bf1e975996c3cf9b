"""Alembic scripts, run by ``schema.py``."""
