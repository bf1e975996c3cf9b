"""Targets of a tunnel's streams: a loopback port, the Jupyter server, sshd or a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from bai_services.core.cluster.image_labels import RESERVED_PORTS
from bai_services.core.errors import BaiError
from bai_services.core.user_input import read_whole
from bai_services.tunnel.channels import Channel, pack
from bai_services.tunnel.endpoint import Stream
from bai_services.tunnel.request_rewriter import RequestRewriter

LOOPBACK = ("127.0.0.1", "::1")
CONNECT_TIMEOUT_SECONDS = 10.0

# For each kind of target: the app name under which its traffic is recorded as activity, and the
# largest transfer, in bytes, that does not count as activity. For commands, this is the size of a
# keepalive. HTTP is missing, because its request handlers record the activity.
USES = {"tcp": ("ports", 0), "ssh": ("ssh", 0), "exec": ("exec", len(pack(Channel.ALIVE)))}

Serve = Callable[[Stream, str], Awaitable[None]]


class Targets:
    """Connects streams to targets: ``tcp:PORT`` and those in ``kinds``, all inside the session.

    ``record_use`` is called with an app name for traffic on a stream. Idle connections and
    keepalives do not count as activity.
    """

    def __init__(self, kinds: Mapping[str, Serve], record_use: Callable[[str], None]) -> None:
        self._kinds: Mapping[str, Serve] = {"tcp": connect_port, **kinds}
        self._record_use = record_use

    async def connect(self, stream: Stream, target: str) -> None:
        """Connect a stream to its target, or refuse it with the reason."""
        kind, _, rest = target.partition(":")
        serve = self._kinds.get(kind)
        if serve is None:
            stream.refuse(f"this session has no target {kind!r}; update its image")
            return
        if kind in USES:
            stream.on_bytes = self._recorder(*USES[kind])
        try:
            await serve(stream, rest)
        except BaiError as error:
            stream.refuse(str(error))
        except OSError as error:
            stream.refuse(error.strerror or str(error))

    def _recorder(self, name: str, quiet_bytes: int) -> Callable[[int], None]:
        def record(count: int) -> None:
            if count > quiet_bytes:
                self._record_use(name)

        return record


async def connect_port(stream: Stream, text: str) -> None:
    """Connect a stream to a loopback port of IPv4 or IPv6, or refuse it with the reason."""
    port = read_whole(text) or 0
    if not 0 < port < 65536:
        stream.refuse(f"{text!r} is not a port between 1 and 65535")
    elif port in RESERVED_PORTS:
        stream.refuse(f"port {port} is reserved; use another one")
    elif not await connect_loopback(stream, port):
        stream.refuse(f"nothing listens on port {port} of the session")


async def connect_loopback(stream: Stream, port: int) -> bool:
    """Connect a stream to a loopback port; return False if nothing listens on it."""
    loop = asyncio.get_running_loop()
    for host in LOOPBACK:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await loop.create_connection(lambda: stream, host, port)
                return True
    return False


def jupyter(port: int, base: str, token: str) -> Serve:
    """Return a function that connects a stream of HTTP requests to the session's Jupyter server.

    The requests are sent with the session's own token, which every program in the session can read
    anyway, and never with the token of the tunnel's owner. In the target ``http:PATH``, PATH is the
    path of an app, relative to the server's base URL ``base``.
    """

    async def serve(stream: Stream, path: str) -> None:
        stream.requests = RequestRewriter(token, base, path)
        if not await connect_loopback(stream, port):
            stream.refuse("the session's Jupyter server does not respond")

    return serve
