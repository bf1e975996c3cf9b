"""Preemption: stop running sessions so that a pending session of higher priority can start."""
