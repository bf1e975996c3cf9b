"""Connections to a running session: its token, requests to its server, and tunnels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from bai_services.client import Token, raise_for_error
from bai_services.core.errors import (
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    RateLimited,
    Unavailable,
)
from bai_services.core.sessions.agent_launch import is_openable
from bai_services.core.sessions.lifecycle import ENDED, SessionType, Status
from bai_services.core.user_input import read_whole, shown
from bai_services.tunnel.client import TunnelClient

from .. import output
from ..command import Connection, segment

_REQUEST_TIMEOUT_SECONDS = 30.0
# Renew a token after this fraction of its lifetime; retry a failed renewal after 30 s.
_RENEWAL_FRACTION = 0.5
_RETRY_SECONDS = 30.0
# The manager itself waits 10 s for the server of a batch session.
_OPEN_TIMEOUT_SECONDS = 180.0
_OPEN_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Remote:
    """A running session, with the URL of its server and a token for it."""

    session: dict[str, Any]
    url: str
    token: str
    # Set only for a caller with a keypair, whose tokens are short-lived. ``renew`` returns a new
    # token and its lifetime in seconds.
    lifetime_seconds: float = 0.0
    renew: Callable[[], Awaitable[tuple[str, float]]] | None = None
    # Raises an error if the session has ended.
    raise_if_ended: Callable[[], Awaitable[None]] | None = None

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the session's own server; return the decoded JSON response.

        Raises
        ------
        Unavailable
            If the server cannot be reached, or does not respond within 30 s.
        BaiError
            If the server responds with an error.
        """
        headers = {"Authorization": f"token {self.token}"}
        try:
            async with httpx.AsyncClient(
                headers=headers, timeout=_REQUEST_TIMEOUT_SECONDS
            ) as client:
                response = await client.request(method, self.url + path, json=body)
        except httpx.TransportError as error:
            raise Unavailable(f"session {self.session['name']} does not respond") from error
        raise_for_error(response)
        return response.json() if response.content else None

    @asynccontextmanager
    async def tunnel(
        self, on_change: Callable[[str], None] = output.note
    ) -> AsyncIterator[TunnelClient]:
        """Open a tunnel and renew its token; pass messages for the user to ``on_change``."""
        tunnel_client = TunnelClient(self.url, self.token, on_change, self.raise_if_ended)
        async with tunnel_client as tunnel:
            renewal = asyncio.create_task(self._renew_token(tunnel, on_change))
            try:
                yield tunnel
            finally:
                renewal.cancel()

    async def _renew_token(self, tunnel: TunnelClient, on_change: Callable[[str], None]) -> None:
        pause = self.lifetime_seconds * _RENEWAL_FRACTION
        while self.renew is not None:
            await asyncio.sleep(pause)
            try:
                token, seconds = await self.renew()
            except (Unavailable, RateLimited):
                pause = _RETRY_SECONDS
                continue
            except BaiError as error:
                on_change(
                    f"the token cannot be renewed; this connection ends when it expires: {error}"
                )
                return
            tunnel.renew(token)
            pause = seconds * _RENEWAL_FRACTION


async def find_running_session(connection: Connection, name: str) -> Remote:
    """Return the running session with this name or id.

    Raises
    ------
    NotFound
        If there is no such session, or the caller may not see it.
    Conflict
        If the session is not running, or is a batch session that runs only its command.
    Forbidden
        If the session belongs to another user and the caller is signed in with a keypair.
    """
    session = await connection.client.get(f"/sessions/{segment(name)}")
    if session["status"] != Status.RUNNING:
        remedy = "" if session["status"] in ENDED else f"; wait for it: bai session wait {name}"
        raise Conflict(f"session {name} is {session['status']}{remedy}", status=session["status"])
    if session["type"] == SessionType.BATCH:
        await open_batch(connection, session)
    address = connection.address(session["url"])
    if address.startswith("http:") and connection.profile.url.startswith("https:"):
        raise Forbidden(
            f"session {name} is at {address}, whose connections are not encrypted, unlike those to "
            "the hub: ask an administrator to use https for the proxy_address of the resource group"
        )
    credential = connection.profile.credential

    async def raise_if_ended() -> None:
        try:
            found = await connection.client.get(f"/sessions/{session['id']}")
        except BaiError:
            return  # the manager may be restarting
        if found["status"] in ENDED:
            raise Conflict(f"session {session['name']} has ended: {found['status_info']}")

    if isinstance(credential, Token):
        return Remote(session, address, credential.value, raise_if_ended=raise_if_ended)

    async def renew() -> tuple[str, float]:
        response = await connection.client.post(f"/sessions/{session['id']}/token", {})
        return response["token"], response["expires_in_seconds"]

    # A session accepts only tokens, so a keypair is exchanged for a token of this session.
    token, seconds = await renew()
    return Remote(session, address, token, seconds, renew, raise_if_ended)


async def open_batch(connection: Connection, session: Mapping[str, Any]) -> None:
    """Start a server in a batch session, and wait until it is ready.

    Raises
    ------
    Conflict
        If the session is not running, or runs only its command.
    Forbidden
        If the session belongs to another user.
    Unavailable
        If the server does not start within 180 s.
    """
    name = session["name"]
    if not is_openable(session["type"], session["started_by"]):
        raise Conflict(
            f"{name} is a batch session that runs only its command, because its agent has not "
            f"started it; read its output: bai session logs {name}"
        )
    path = f"/sessions/{session['id']}/server"
    deadline = asyncio.get_running_loop().time() + _OPEN_TIMEOUT_SECONDS
    while not (await connection.client.post(path, {}))["is_ready"]:
        if asyncio.get_running_loop().time() > deadline:
            raise Unavailable(f"the server in session {name} does not start")
        await asyncio.sleep(_OPEN_PAUSE_SECONDS)


def parse_listen_address(text: str | None) -> tuple[str, int]:
    """Return the host and the port of ``[HOST:]PORT``; the default host is 127.0.0.1.

    For None, return port 0, which stands for any free port.

    Raises
    ------
    InvalidRequest
        If ``text`` does not have this form.
    """
    host, _, digits = (text or "0").rpartition(":")
    port = read_whole(digits)
    if port is None or port > 65535:
        raise InvalidRequest(f"-b {shown(text)!r} is not [HOST:]PORT; for example -b 8080")
    return host.strip("[]") or "127.0.0.1", port


async def listen(tunnel: TunnelClient, target: str, host: str, port: int) -> asyncio.Server:
    """Listen on a local port and return the server; each connection becomes a stream to ``target``.

    Raises
    ------
    Conflict
        If the port is not available.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(lambda: tunnel.stream(target), host, port)
    except OSError as error:
        raise Conflict(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port "
            "with -b"
        ) from error
