"""`bai app`: forward a local port to an app or TCP port of a session."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from typing import Any

import click

from bai_services.core.errors import BaiError, InvalidRequest, NotFound

from .. import output
from ..command import Connection, connected, example, json_option, segment
from ..sessions.remote import Remote, find_running_session, listen, parse_listen_address

_POLL_INTERVAL_SECONDS = 0.5
_START_TIMEOUT_SECONDS = 300.0
# Jupyter itself serves apps in the state ``builtin``, so they need not be started.
_READY = ("builtin", "running")


@click.command(
    epilog=example("bai app my-lab tensorboard --open", "bai app my-lab --tcp 5432 -b 5432")
)
@click.argument("session")
@click.argument("name", metavar="[APP]", required=False)
@click.option("--tcp", "port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Forward to this TCP port of the session instead of an app.")  # fmt: skip
@click.option("-b", "--bind", metavar="[HOST:]PORT",
              help="Local address to listen on. Default: a free port of 127.0.0.1.")  # fmt: skip
@click.option("--open", "opens_browser", is_flag=True, help="Open the app in the browser.")
@json_option
@connected
async def app(
    connection: Connection,
    session: str,
    *,
    name: str | None,
    port: int | None,
    bind: str | None,
    opens_browser: bool,
    as_json: bool,
) -> None:
    """Forward a local port to an app or TCP port of a session, until Ctrl-C.

    Anyone who can connect to the local port can use the app with your permissions:
    be careful with a HOST other than 127.0.0.1.
    """
    if (name is None) == (port is None):
        raise click.UsageError("pass either APP or --tcp PORT")
    if port is not None and opens_browser:
        raise click.UsageError("--open works only with APP, not with --tcp PORT")
    host, local_port = parse_listen_address(bind)
    remote = await find_running_session(connection, session)
    if name is not None:
        target = f"http:{await _start_app(remote, name, as_json=as_json)}"
    else:
        target = f"tcp:{port}"
    async with remote.tunnel() as tunnel:
        server = await listen(tunnel, target, host, local_port)
        host, local_port = server.sockets[0].getsockname()[:2]
        endpoint = f"[{host}]:{local_port}" if ":" in host else f"{host}:{local_port}"
        address = endpoint if name is None else f"http://{endpoint}/"
        document = {"address": address, "host": host, "port": local_port, "session": session}
        text = f"{name or f'port {port}'} of {session}: {address}"
        output.print_done(text, document, as_json=as_json)
        sys.stdout.flush()
        if opens_browser:
            await asyncio.to_thread(webbrowser.open, address)
        try:
            await tunnel.wait_lost()
        finally:
            server.close()


async def _start_app(remote: Remote, name: str, *, as_json: bool) -> str:
    """Start an app unless it is running, wait until it is ready, and return its URL path.

    Raises
    ------
    InvalidRequest
        If the session has no app of this name.
    NotFound
        If the app is not available in this session.
    BaiError
        If the app fails to start, or does not start within 300 s.
    """
    offered = await _app(remote, name)
    if not offered.get("is_offered", True):
        raise NotFound(offered.get("message") or f"app {name} is not available in this session")
    if offered["state"] not in _READY:
        if not as_json:
            output.note(f"starting {offered['title']}")
        await remote.request("POST", f"bai/api/apps/{segment(name)}", {})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_TIMEOUT_SECONDS
        offered = await _app(remote, name)
        while offered["state"] == "starting" and loop.time() < deadline:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
            offered = await _app(remote, name)
        if offered["state"] not in _READY:
            reason = offered.get("message") or f"it is {offered['state']}"
            raise BaiError(f"{offered['title']} did not start: {reason}", app=name)
    return str(offered["path"])


async def _app(remote: Remote, name: str) -> dict[str, Any]:
    items = (await remote.request("GET", "bai/api/apps"))["items"]
    for item in items:
        if item["name"] == name:
            return dict(item)
    known = ", ".join(item["name"] for item in items if item.get("is_offered", True))
    raise InvalidRequest(
        f"session {remote.session['name']} has no app {name!r}; available apps: {known}"
    )
