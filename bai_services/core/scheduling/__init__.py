"""Scheduling: the queue, caps, placement, estimates and replays."""
