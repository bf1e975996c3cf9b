"""Devices of a machine: device kinds, grants, sharing and the memory watchdog."""
