"""Commands that list agents, accelerators, images and presets."""
