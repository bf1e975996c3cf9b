"""A websocket that is completely closed when its block ends."""

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
        # The socket is closed only when the server has sent its close frame too.
        while await socket.read_message() is not None:
            pass
