"""Engines start, watch and stop sessions. There is one for containers and one for processes."""
