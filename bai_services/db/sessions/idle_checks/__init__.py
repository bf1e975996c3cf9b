"""Stores of idle checkers and of their results."""
