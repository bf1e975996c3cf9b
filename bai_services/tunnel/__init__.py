"""Tunnel: many TCP streams over one websocket; streams survive a reconnect. Both endpoints."""
