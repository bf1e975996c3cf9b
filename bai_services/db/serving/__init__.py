"""Stores of endpoints, replicas, tokens and gateways."""
