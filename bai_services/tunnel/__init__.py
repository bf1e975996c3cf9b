"""Both ends of a tunnel: many TCP streams over one websocket, which survive a reconnect."""
