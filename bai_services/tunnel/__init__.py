"""Tunnel: many TCP streams over one websocket, which survive its loss; both ends."""
