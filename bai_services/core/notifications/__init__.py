"""Notifications: event catalogue, user settings, delivery times and webhooks."""
