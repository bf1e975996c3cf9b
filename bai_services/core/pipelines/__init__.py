"""Pipelines: definitions, parameters, and the state machine of runs."""
