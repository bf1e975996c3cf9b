"""Preemption: rules for stopping running sessions in favour of pending ones, and plans."""
