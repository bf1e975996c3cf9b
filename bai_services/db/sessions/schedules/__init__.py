"""Stores of schedules and of their runs."""
