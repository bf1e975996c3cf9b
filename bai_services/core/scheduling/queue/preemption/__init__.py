"""Preemption in a scheduling pass: choose victims, and reserve their capacity for others."""
