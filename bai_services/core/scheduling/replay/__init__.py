"""Recorded workloads through the real queue, in simulated time."""
