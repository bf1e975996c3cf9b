"""Endpoints of model serving: their definition, the loop that runs them, and their gateways."""
