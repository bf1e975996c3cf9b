"""Model serving: what gateways know of endpoints, choice of replicas, scaling, use of tokens."""
