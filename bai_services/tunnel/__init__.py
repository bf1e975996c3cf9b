"""Tunnel: many TCP streams over one websocket, which survive its reconnects; both sides."""
