"""The session's end of tunnels: ``bai/tunnel``, for the session's owner only."""

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
from bai_services.tunnel.end import End
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
from bai_services.tunnel.memory import keep_freed

# A restarting proxy or Hub is back within this time.
DETACHED_SECONDS = 120.0
MAX_TUNNELS = 32


class Tunnels:
    """The tunnels of one session; each survives the loss of its websocket for a while."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._ends: dict[bytes, End] = {}
        self._handlers: dict[bytes, TunnelHandler] = {}
        self._ending: dict[bytes, asyncio.TimerHandle] = {}

    def attach(self, hello: Hello, handler: TunnelHandler) -> tuple[End, bool]:
        """Return the tunnel of a websocket, and whether it existed before.

        Raises
        ------
        Conflict
            If there are too many.
        """
        end = self._ends.get(hello.key)
        is_resumed = end is not None and hello.is_resumed
        if end is None or not is_resumed:
            if end is not None:
                self.end(end)  # its websocket was lost before the client received the answer
            if len(self._ends) >= MAX_TUNNELS and not self._drop_detached():
                raise Conflict(f"a session has at most {MAX_TUNNELS} tunnels; close some")
            end = self._ends[hello.key] = End(hello.key, self._targets.connect)
        if (timer := self._ending.pop(hello.key, None)) is not None:
            timer.cancel()
        # The old websocket may stay open for long if a proxy has died.
        if (before := self._handlers.pop(hello.key, None)) is not None:
            before.replaced()
        self._handlers[hello.key] = handler
        return end, is_resumed

    def detach(self, end: End, handler: TunnelHandler) -> None:
        """Keep a tunnel without a websocket for a while, then end it."""
        key = end.link.key
        if self._handlers.get(key) is not handler:
            return
        del self._handlers[key]
        loop = asyncio.get_running_loop()
        self._ending[key] = loop.call_later(DETACHED_SECONDS, self.end, end)

    def end(self, end: End) -> None:
        """End a tunnel with all its streams."""
        key = end.link.key
        if self._ends.get(key) is end:
            del self._ends[key]
        self._handlers.pop(key, None)
        if (timer := self._ending.pop(key, None)) is not None:
            timer.cancel()
        end.close()

    def _drop_detached(self) -> bool:
        """End the tunnel that has had no websocket for longest; False if there is none."""
        for key in self._ending:
            self.end(self._ends[key])
            return True
        return False


class TunnelHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One websocket of a tunnel."""

    def initialize(self, tunnels: Tunnels, environ: Mapping[str, str]) -> None:
        self.tunnels = tunnels
        self.owner = environ.get("JUPYTERHUB_USER", "")
        self.end: End | None = None
        self.sending: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        return MAX_FRAME_BYTES

    @property
    def ping_interval(self) -> int:
        return 0  # the tunnel sends its own

    def set_default_headers(self) -> None:
        """Leave out Jupyter's headers, which do not apply to websockets."""

    def get_compression_options(self) -> None:
        return None

    @ws_authenticated
    async def get(self) -> None:
        """Accept the websocket of the owner's own program; cookies, which any page may send, are
        refused.

        Others who may open the session, such as administrators and users it is shared with, must
        not act as its owner through a tunnel.
        """
        if self.owner and self.current_user.username != self.owner:
            raise HTTPError(403, "only the session's owner may open a tunnel to it")
        if self.request.query or not self.request.headers.get("Authorization"):
            # A query would be logged by every proxy on the way.
            raise HTTPError(403, "a tunnel needs a token, in the Authorization header only")
        await super().get()

    def open(self) -> None:
        keep_freed()
        stream: Any = self.ws_connection.stream  # type: ignore[union-attr]  # it is open
        stream.set_nodelay(True)
        stream.read_chunk_size = MAX_FRAME_BYTES

    async def send(self, message: bytes) -> None:
        await self.write_message(message, binary=True)

    def on_message(self, message: str | bytes) -> None:
        try:
            if isinstance(message, str):
                raise ProtocolError("a text")
            if self.end is None:
                self._greeted(message)
            else:
                self.end.receive(message)
        except ProtocolError as error:
            self.log.warning("bai_labext: a tunnel is closed: %s", error)
            self._finish(f"the session does not understand: {error}")
        except Conflict as error:
            self._finish(str(error))
        except Goodbye:
            if self.end is not None:
                self.tunnels.end(self.end)
            self.close()

    def on_close(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
        if self.end is not None:
            self.tunnels.detach(self.end, self)

    def replaced(self) -> None:
        """Close this websocket in favour of a newer one of the same tunnel."""
        self.end = None
        if self.sending is not None:
            self.sending.cancel()
        self.close()

    def _greeted(self, message: bytes) -> None:
        hello = decode_hello(decode(message))
        end, is_resumed = self.tunnels.attach(hello, self)
        self.end = end
        self.write_message(end.hello(is_resumed=is_resumed), binary=True)
        self.sending = asyncio.ensure_future(self._send(end, hello.received if is_resumed else 0))

    async def _send(self, end: End, received: int) -> None:
        with suppress(WebSocketClosedError, StreamClosedError):
            await end.run(self, received)
        self.close()

    def sign_in_ended(self) -> None:
        """End the tunnel with all its streams; called by the sign-in watch."""
        self._finish("the token is no longer valid; sign in again")

    def _finish(self, message: str) -> None:
        """End the tunnel permanently, and send the reason."""
        if self.end is not None:
            self.tunnels.end(self.end)
        with suppress(WebSocketClosedError):
            self.write_message(encode_text(FrameKind.BYE, 0, message), binary=True)
        self.close()


def route(targets: Targets, environ: Mapping[str, str]) -> tuple[str, Any, dict[str, Any]]:
    """Return the route below ``bai/`` with its handler."""
    return "tunnel", TunnelHandler, {"tunnels": Tunnels(targets), "environ": environ}
