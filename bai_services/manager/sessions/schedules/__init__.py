"""Schedules of users, and the loop that starts and stops their sessions."""
