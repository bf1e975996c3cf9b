"""Devices of a machine: device kinds, inventory, grants, sharing and the memory watchdog."""
