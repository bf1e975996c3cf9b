"""Model serving: endpoints with revisions, replicas and tokens; rules of gateways and scaling."""
