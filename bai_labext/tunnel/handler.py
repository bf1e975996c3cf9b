"""Websocket ``bai/tunnel``: the session's end of tunnels, for the session's owner only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from bai_labext.tunnel.targets import Targets
from bai_services.core.errors import Conflict
from bai_services.tunnel.endpoint import TunnelEndpoint
from bai_services.tunnel.frames import (
    MAX_FRAME_BYTES,
    FrameKind,
    Hello,
    ProtocolError,
    decode,
    decode_hello,
    encode_text,
)
from bai_services.tunnel.link import Goodbye
from bai_services.tunnel.memory import retain_freed_memory

# A tunnel without a websocket ends after this time; proxy and Hub restart faster.
DETACHED_TIMEOUT_SECONDS = 120.0
MAX_TUNNELS = 32


class Tunnels:
    """The tunnels of one session; a tunnel survives the loss of its websocket for up to 120 s."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._ends: dict[bytes, TunnelEndpoint] = {}
        self._handlers: dict[bytes, TunnelHandler] = {}
        self._detached: dict[bytes, asyncio.TimerHandle] = {}

    def attach(self, hello: Hello, handler: TunnelHandler) -> tuple[TunnelEndpoint, bool]:
        """Return the tunnel for a new websocket, and whether an existing tunnel is resumed.

        Raises
        ------
        Conflict
            If the session has `MAX_TUNNELS` connected tunnels.
        """
        end = self._ends.get(hello.key)
        is_resumed = end is not None and hello.is_resumed
        if end is None or not is_resumed:
            if end is not None:
                # The client does not know this tunnel, because its websocket was lost before our
                # hello arrived.
                self.end(end)
            if len(self._ends) >= MAX_TUNNELS and not self._end_oldest_detached():
                raise Conflict(f"a session has at most {MAX_TUNNELS} tunnels; close some")
            end = self._ends[hello.key] = TunnelEndpoint(hello.key, self._targets.connect)
        if (timer := self._detached.pop(hello.key, None)) is not None:
            timer.cancel()
        # If a proxy has ended, the old websocket can appear open for a long time.
        if (before := self._handlers.pop(hello.key, None)) is not None:
            before.close_replaced()
        self._handlers[hello.key] = handler
        return end, is_resumed

    def detach(self, end: TunnelEndpoint, handler: TunnelHandler) -> None:
        """Start the timeout of a tunnel that has lost its websocket."""
        key = end.link.key
        if self._handlers.get(key) is not handler:
            return
        del self._handlers[key]
        loop = asyncio.get_running_loop()
        self._detached[key] = loop.call_later(DETACHED_TIMEOUT_SECONDS, self.end, end)

    def end(self, end: TunnelEndpoint) -> None:
        """End a tunnel and all its streams."""
        key = end.link.key
        if self._ends.get(key) is end:
            del self._ends[key]
        self._handlers.pop(key, None)
        if (timer := self._detached.pop(key, None)) is not None:
            timer.cancel()
        end.close()

    def _end_oldest_detached(self) -> bool:
        """End the tunnel that lost its websocket first; return False if none is detached."""
        for key in self._detached:
            self.end(self._ends[key])
            return True
        return False


class TunnelHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One websocket of a tunnel."""

    def initialize(self, tunnels: Tunnels, environ: Mapping[str, str]) -> None:
        self.tunnels = tunnels
        self.owner = environ.get("JUPYTERHUB_USER", "")
        self.end: TunnelEndpoint | None = None
        self.sending: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        return MAX_FRAME_BYTES

    @property
    def ping_interval(self) -> int:
        return 0  # the tunnel's protocol has its own keepalives

    def set_default_headers(self) -> None:
        """Leave out Jupyter's headers, which do not apply to websockets."""

    def get_compression_options(self) -> None:
        return None

    @ws_authenticated
    async def get(self) -> None:
        """Accept a websocket of the owner that is authorized by a token in its header.

        Cookies are not accepted, because every web page can make a browser send them. Other users
        with access to the session, such as administrators, must not act as its owner.
        """
        if self.owner and self.current_user.username != self.owner:
            raise HTTPError(403, "only the session's owner may open a tunnel to it")
        if self.request.query or not self.request.headers.get("Authorization"):
            # Proxies log the query, so it must not contain a token.
            raise HTTPError(
                403, "a tunnel requires a token in the Authorization header and a URL without query"
            )
        await super().get()

    def open(self) -> None:
        retain_freed_memory()
        stream: Any = self.ws_connection.stream  # type: ignore[union-attr]  # open, so not None
        stream.set_nodelay(True)
        stream.read_chunk_size = MAX_FRAME_BYTES

    async def send(self, message: bytes) -> None:
        await self.write_message(message, binary=True)

    def on_message(self, message: str | bytes) -> None:
        try:
            if isinstance(message, str):
                raise ProtocolError("a text message instead of a binary one")
            if self.end is None:
                self._accept_hello(message)
            else:
                self.end.receive(message)
        except ProtocolError as error:
            self.log.warning("bai_labext: closed a tunnel after an invalid message: %s", error)
            self._end_tunnel(f"the session received an invalid message: {error}")
        except Conflict as error:
            self._end_tunnel(str(error))
        except Goodbye:
            if self.end is not None:
                self.tunnels.end(self.end)
            self.close()

    def on_close(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
        if self.end is not None:
            self.tunnels.detach(self.end, self)

    def close_replaced(self) -> None:
        """Close this websocket, because a newer one has resumed its tunnel."""
        self.end = None
        if self.sending is not None:
            self.sending.cancel()
        self.close()

    def _accept_hello(self, message: bytes) -> None:
        hello = decode_hello(decode(message))
        end, is_resumed = self.tunnels.attach(hello, self)
        self.end = end
        self.write_message(end.hello(is_resumed=is_resumed), binary=True)
        self.sending = asyncio.ensure_future(self._send(end, hello.received if is_resumed else 0))

    async def _send(self, end: TunnelEndpoint, received: int) -> None:
        with suppress(WebSocketClosedError, StreamClosedError):
            await end.run(self, received)
        self.close()

    def sign_in_ended(self) -> None:
        """End the tunnel and all its streams; called by ``sign_in_watch``."""
        self._end_tunnel("the token is no longer valid; sign in again")

    def _end_tunnel(self, message: str) -> None:
        """End the tunnel, so that it cannot be resumed, and send the reason to the client."""
        if self.end is not None:
            self.tunnels.end(self.end)
        with suppress(WebSocketClosedError):
            self.write_message(encode_text(FrameKind.BYE, 0, message), binary=True)
        self.close()


def route(targets: Targets, environ: Mapping[str, str]) -> tuple[str, Any, dict[str, Any]]:
    """Return the route below ``bai/``: path, handler and the handler's arguments."""
    return "tunnel", TunnelHandler, {"tunnels": Tunnels(targets), "environ": environ}
