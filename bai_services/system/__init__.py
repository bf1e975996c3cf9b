"""Facilities of the operating system: processes, ports, ``/proc``, safe access to files."""
