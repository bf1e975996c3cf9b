"""Ways into a session: apps, ports, SSH and shares."""
