"""REST API of notifications and webhooks."""
