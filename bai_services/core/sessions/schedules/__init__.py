"""Schedules: times at which sessions of a user start and stop automatically."""
