"""Cluster: agents, devices, images, resource groups and presets."""
