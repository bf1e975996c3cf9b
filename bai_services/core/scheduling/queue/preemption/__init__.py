"""Preemption in a pass: choose victims, hold what they free, and start the waiting sessions."""
