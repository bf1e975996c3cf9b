"""Preemption in a scheduling pass: choose victims and hold their capacity."""
