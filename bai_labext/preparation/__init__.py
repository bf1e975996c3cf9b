"""Preparation of a session for a stop: save what can be saved, and show it when it is back."""
