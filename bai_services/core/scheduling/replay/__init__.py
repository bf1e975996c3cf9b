"""Replay of recorded workloads through the real queue, in simulated time."""
