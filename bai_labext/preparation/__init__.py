"""Prepare a session for a stop: save its state, and show what was saved when it is back."""
