"""Preemption in a scheduling pass: choose victims, hold what they free, start pending sessions."""
