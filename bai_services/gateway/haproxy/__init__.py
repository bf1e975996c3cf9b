"""HAProxy in front of the gateway: forwards requests to replicas, and the rest to the gateway."""
