"""TCP streams into a session over one websocket."""
