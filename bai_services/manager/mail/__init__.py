"""Outgoing mails: queue, texts and delivery to the mail server."""
