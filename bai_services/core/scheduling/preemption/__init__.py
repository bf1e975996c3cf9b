"""Preemption: rules and plans for stopping running sessions so that pending sessions can start."""
