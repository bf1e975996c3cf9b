"""HAProxy in front of the gateway: answers what it can decide itself, and forwards the rest."""
