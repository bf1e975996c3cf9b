"""Agents, images, resource groups, presets, schedules and replays."""
