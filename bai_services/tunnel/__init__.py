"""Both ends of a tunnel: many TCP streams over one websocket. Streams survive a reconnect."""
