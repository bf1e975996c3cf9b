"""Engines start, watch and stop sessions. Each kind of agent has its own engine."""
