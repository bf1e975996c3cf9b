"""`bai notification`: notifications, their settings, and webhooks."""
