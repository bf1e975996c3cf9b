"""Idle checkers: rules that stop unused sessions, and the evaluation of these rules."""
