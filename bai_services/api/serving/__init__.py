"""Endpoints of model serving, and what gateways read and report."""
