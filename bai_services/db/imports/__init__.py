"""Stores of imports."""
