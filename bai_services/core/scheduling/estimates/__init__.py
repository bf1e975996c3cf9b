"""Estimates: when a pending session starts, why it is pending, and what would start it sooner."""
