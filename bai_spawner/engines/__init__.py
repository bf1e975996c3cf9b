"""Engines, which start, watch and stop sessions: one per kind of agent."""
