"""`bai app`: a session's apps and ports on a local port."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from typing import Any

import click

from bai_services.core.errors import BaiError, InvalidRequest, NotFound

from .. import output
from ..command import Connection, connected, example, json_option, segment
from ..sessions.remote import Remote, listen, read_address, running

_LOOK_SECONDS = 0.5
_START_SECONDS = 300.0
# Served by Jupyter itself: there is nothing to start.
_READY = ("builtin", "running")


@click.command(
    epilog=example("bai app my-lab tensorboard --open", "bai app my-lab --tcp 5432 -b 5432")
)
@click.argument("session")
@click.argument("name", metavar="[APP]", required=False)
@click.option("--tcp", "port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Any TCP port of the session in place of an app.")  # fmt: skip
@click.option("-b", "--bind", metavar="[HOST:]PORT",
              help="Where to listen here; default: a free port of 127.0.0.1.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open the app in the browser.")
@json_option
@connected
async def app(
    connection: Connection,
    session: str,
    *,
    name: str | None,
    port: int | None,
    bind: str | None,
    opens: bool,
    as_json: bool,
) -> None:
    """Open a local port to an app of a session, or to any of its TCP ports, until Ctrl-C.

    Whoever reaches that local port uses the app as you: say another HOST with care.
    """
    if (name is None) == (port is None):
        raise click.UsageError("name an app, or a port with --tcp PORT")
    if port is not None and opens:
        raise click.UsageError("--open needs an app")
    host, local_port = read_address(bind)
    remote = await running(connection, session)
    if name is not None:
        target = f"http:{await _started(remote, name, as_json=as_json)}"
    else:
        target = f"tcp:{port}"
    async with remote.tunnel() as tunnel:
        server = await listen(tunnel, target, host, local_port)
        host, local_port = server.sockets[0].getsockname()[:2]
        place = f"[{host}]:{local_port}" if ":" in host else f"{host}:{local_port}"
        address = place if name is None else f"http://{place}/"
        shown = {"address": address, "host": host, "port": local_port, "session": session}
        what = name or f"port {port}"
        output.print_done(f"{what} of {session}: {address}", shown, as_json=as_json)
        sys.stdout.flush()
        if opens:
            await asyncio.to_thread(webbrowser.open, address)
        try:
            await tunnel.wait_lost()
        finally:
            server.close()


async def _started(remote: Remote, name: str, *, as_json: bool) -> str:
    """Start an app where it does not run, wait for it, and return its path.

    Raises
    ------
    NotFound
        If the session has no such app.
    BaiError
        If it does not start.
    """
    found = await _app(remote, name)
    if not found.get("is_offered", True):
        raise NotFound(found.get("message") or f"this session does not offer {name}")
    if found["state"] not in _READY:
        if not as_json:
            output.note(f"starting {found['title']}")
        await remote.ask("POST", f"bai/api/apps/{segment(name)}", {})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        found = await _app(remote, name)
        while found["state"] == "starting" and loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            found = await _app(remote, name)
        if found["state"] not in _READY:
            reason = found.get("message") or f"it is {found['state']}"
            raise BaiError(f"{found['title']} did not start: {reason}", app=name)
    return str(found["path"])


async def _app(remote: Remote, name: str) -> dict[str, Any]:
    items = (await remote.ask("GET", "bai/api/apps"))["items"]
    for item in items:
        if item["name"] == name:
            return dict(item)
    known = ", ".join(item["name"] for item in items if item.get("is_offered", True))
    raise InvalidRequest(f"session {remote.session['name']} has no app {name!r}; it has {known}")
