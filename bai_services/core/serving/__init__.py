"""Model serving: endpoints with revisions, replicas and tokens."""
