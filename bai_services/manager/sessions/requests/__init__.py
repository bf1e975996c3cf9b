"""Requests for sessions: validated and completed before a session is created."""
