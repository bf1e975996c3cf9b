"""Agents, devices, images, resource groups and presets."""
