"""Engines of the spawner and the agent: they start, poll and stop containers or processes."""
