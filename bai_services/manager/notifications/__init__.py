"""Notifications: raise events, create notifications, send mails and call webhooks."""
