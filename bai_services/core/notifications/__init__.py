"""Notifications: catalogue of events, settings of users, times of delivery, webhooks."""
