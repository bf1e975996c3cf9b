"""HAProxy in front of the gateway: it answers what it can decide itself, and passes the rest on."""
