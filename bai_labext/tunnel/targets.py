"""Targets of a tunnel's streams: a loopback port, the Jupyter server, sshd."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from bai_services.core.cluster.image_labels import RESERVED_PORTS
from bai_services.core.errors import BaiError
from bai_services.core.user_input import read_whole
from bai_services.tunnel.channels import Channel, pack
from bai_services.tunnel.end import Stream
from bai_services.tunnel.heads import RequestHeads

LOOPBACK = ("127.0.0.1", "::1")
CONNECT_SECONDS = 10.0

# Per kind: the name under which its bytes count as use, and the size of messages that do not count,
# because a command asks every few seconds whether its client is still there. HTTP is counted by the
# handler of each request.
USES = {"tcp": ("ports", 0), "ssh": ("ssh", 0), "exec": ("exec", len(pack(Channel.ALIVE)))}

Serve = Callable[[Stream, str], Awaitable[None]]


class Targets:
    """``tcp:PORT`` and the kinds in ``kinds``; never an address outside of the session.

    ``used`` is called with the name of what is really used: a silent open connection and the
    tunnel's own keep-alives do not count.
    """

    def __init__(self, kinds: Mapping[str, Serve], used: Callable[[str], None]) -> None:
        self._kinds: Mapping[str, Serve] = {"tcp": connect_port, **kinds}
        self._used = used

    async def connect(self, stream: Stream, target: str) -> None:
        """Connect a stream with its target, or refuse it with the reason."""
        kind, _, rest = target.partition(":")
        serve = self._kinds.get(kind)
        if serve is None:
            stream.refuse(f"this session has no target {kind!r}; update its image")
            return
        if kind in USES:
            stream.on_bytes = self._noting(*USES[kind])
        try:
            await serve(stream, rest)
        except BaiError as error:
            stream.refuse(str(error))
        except OSError as error:
            stream.refuse(error.strerror or str(error))

    def _noting(self, name: str, quiet_bytes: int) -> Callable[[int], None]:
        def note(count: int) -> None:
            if count > quiet_bytes:
                self._used(name)

        return note


async def connect_port(stream: Stream, text: str) -> None:
    """Connect a stream with a loopback port, on whichever of IPv4 and IPv6 something listens."""
    port = read_whole(text) or 0
    if not 0 < port < 65536:
        stream.refuse(f"{text!r} is not a port between 1 and 65535")
    elif port in RESERVED_PORTS:
        stream.refuse(f"port {port} is reserved; use another one")
    elif not await connect_loopback(stream, port):
        stream.refuse(f"nothing listens on port {port} of the session")


async def connect_loopback(stream: Stream, port: int) -> bool:
    """Connect a stream with a loopback port; return False if nothing listens."""
    loop = asyncio.get_running_loop()
    for host in LOOPBACK:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: stream, host, port)
                return True
    return False


def jupyter(port: int, base: str, token: str) -> Serve:
    """Return a function that connects a stream of HTTP with the session's own Jupyter server.

    The requests get the session's own token, which every app in it could read anyway; the token of
    the tunnel's owner is not passed on. The rest of the target is an app's path.
    """

    async def serve(stream: Stream, path: str) -> None:
        stream.requests = RequestHeads(token, base, path)
        if not await connect_loopback(stream, port):
            stream.refuse("the session's Jupyter server does not answer")

    return serve
