"""Many TCP streams over one websocket, kept over its loss; both ends are made of this."""
