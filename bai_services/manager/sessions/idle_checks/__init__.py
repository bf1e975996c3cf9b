"""Idle checkers: administration, judging of sessions, and settings of users for their sessions."""
