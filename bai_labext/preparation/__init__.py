"""Preparation of a session for a stop: save what can be saved, and describe it after the return."""
