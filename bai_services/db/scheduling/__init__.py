"""Scheduling: queue, agent states, allocations, caps, reservations, usage and the lease."""
