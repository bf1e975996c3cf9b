"""Validate requests for sessions and complete them before a session is created."""
