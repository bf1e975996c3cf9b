"""Commands that connect to sessions: apps, ports, SSH and shares."""
