"""Scheduling: queue, admission, quotas, placement, estimates and the lease."""
