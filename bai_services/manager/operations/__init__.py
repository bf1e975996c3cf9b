"""Announcements and maintenance."""
