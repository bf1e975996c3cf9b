"""A websocket whose socket is closed when its block ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect


@asynccontextmanager
async def open_websocket(url: str, authorization: str) -> AsyncIterator[WebSocketClientConnection]:
    """Open a websocket at ``url`` (``http:``) with an Authorization header."""
    request = HTTPRequest(url.replace("http:", "ws:", 1), headers={"Authorization": authorization})
    socket = await websocket_connect(request)
    try:
        yield socket
    finally:
        socket.close()
        # The socket is closed when the server has also sent its close frame.
        while await socket.read_message() is not None:
            pass
