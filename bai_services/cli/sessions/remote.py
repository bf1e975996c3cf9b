"""Reaching into a session: which one, with which token, and the tunnel to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from bai_services.client import Token, raise_for_error
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, RateLimited, Unavailable
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.tunnel.client import TunnelClient

from .. import output
from ..command import Connection, segment

_ASK_SECONDS = 30.0
# At which part of its life a token is replaced, and how soon that is tried again.
_RENEWED_AT = 0.5
_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Remote:
    """A running session and what proves to its own server who calls."""

    session: dict[str, Any]
    url: str
    token: str
    # Of a keypair's token, which lives for minutes: for how long, and where another comes from.
    seconds: float = 0.0
    renew: Callable[[], Awaitable[tuple[str, float]]] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the session's own server something; return its JSON."""
        headers = {"Authorization": f"token {self.token}"}
        try:
            async with httpx.AsyncClient(headers=headers, timeout=_ASK_SECONDS) as client:
                answer = await client.request(method, self.url + path, json=body)
        except httpx.TransportError as error:
            raise Unavailable(f"session {self.session['name']} does not answer") from error
        raise_for_error(answer)
        return answer.json() if answer.content else None

    @asynccontextmanager
    async def tunnel(
        self, on_change: Callable[[str], None] = output.note
    ) -> AsyncIterator[TunnelClient]:
        async with TunnelClient(self.url, self.token, on_change) as tunnel:
            renewing = asyncio.create_task(self._keep_renewing(tunnel, on_change))
            try:
                yield tunnel
            finally:
                renewing.cancel()

    async def _keep_renewing(self, tunnel: TunnelClient, on_change: Callable[[str], None]) -> None:
        pause = self.seconds * _RENEWED_AT
        while self.renew is not None:
            await asyncio.sleep(pause)
            try:
                token, seconds = await self.renew()
            except (Unavailable, RateLimited):
                pause = _RETRY_SECONDS
                continue
            except BaiError as error:
                on_change(f"this connection ends with its token, which is not renewed: {error}")
                return
            tunnel.renew(token)
            pause = seconds * _RENEWED_AT


async def running(connection: Connection, name: str) -> Remote:
    """Return the running session of that name or id.

    Raises
    ------
    Conflict
        If it does not run, or not any more.
    Forbidden
        If it is somebody else's, and the command was signed in with a keypair.
    """
    found = await connection.client.get(f"/sessions/{segment(name)}")
    if found["status"] != Status.RUNNING:
        todo = "it is over" if found["status"] in ENDED else f"bai session wait {name} waits for it"
        raise Conflict(f"session {name} is {found['status']}; {todo}", status=found["status"])
    address = connection.address(found["url"])
    credential = connection.profile.credential
    if isinstance(credential, Token):
        return Remote(found, address, credential.value)

    async def renew() -> tuple[str, float]:
        told = await connection.client.post(f"/sessions/{found['id']}/token", {})
        return told["token"], told["expires_in_seconds"]

    # Sessions take tokens only; a keypair gets one for this session alone.
    token, seconds = await renew()
    return Remote(found, address, token, seconds, renew)


def read_address(text: str | None) -> tuple[str, int]:
    """Return host and port of ``[HOST:]PORT``; loopback and any free port where nothing is said.

    Raises
    ------
    InvalidRequest
        If it has another form.
    """
    host, _, port = (text or "0").rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise InvalidRequest(f"-b {text!r} is not [HOST:]PORT; write for instance -b 8080")
    return host.strip("[]") or "127.0.0.1", int(port)


async def listen(tunnel: TunnelClient, target: str, host: str, port: int) -> asyncio.Server:
    """Listen on a local port, each connection a stream to ``target``.

    Raises
    ------
    Conflict
        If the port is not to be had.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(lambda: tunnel.stream(target), host, port)
    except OSError as error:
        raise Conflict(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
