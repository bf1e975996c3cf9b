"""Idle checkers: administration, judging of sessions, and users' settings for their sessions."""
