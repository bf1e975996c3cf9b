"""Prepare a session for a stop: save its state; after the next start, show what was saved."""
