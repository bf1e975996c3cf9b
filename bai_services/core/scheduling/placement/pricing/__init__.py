"""Prices and values of devices, computed from the mix of a group's requests."""
