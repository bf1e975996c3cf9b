"""Stores of notifications."""
