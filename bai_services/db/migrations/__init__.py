"""Alembic's scripts; ``schema.py`` runs them."""
