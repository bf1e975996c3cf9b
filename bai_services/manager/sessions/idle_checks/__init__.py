"""Idle checkers: administration, judging of sessions, and what users set for their sessions."""
