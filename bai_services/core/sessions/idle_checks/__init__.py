"""Idle checkers: rules that stop sessions which are not used, and the judging of sessions."""
