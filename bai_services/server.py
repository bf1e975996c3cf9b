"""The manager process: migrate the database, serve, shut down in order."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jupyterhub.services.auth import HubOAuth
from sqlalchemy.exc import OperationalError
from tornado.httpserver import HTTPServer

from bai_services.api.accounts.sign_in import TOKEN_CACHE_SECONDS, SignIn
from bai_services.api.app import make_app
from bai_services.api.base import BODY_CHUNK_BYTES
from bai_services.db import schema
from bai_services.db.database import Database
from bai_services.environment import read_settings
from bai_services.manager.manager import Manager
from bai_services.manager.scheduling.idle_scheduling import new_loop
from bai_services.manager.settings import Settings

DATABASE_PATIENCE_SECONDS = 45.0
STEP_SECONDS = 0.5
STOP_SECONDS = 10.0

log = logging.getLogger("bai.manager")


def run(environ: Mapping[str, str], sockets: Sequence[socket.socket]) -> None:
    """Serve on sockets that already listen."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(environ, sockets))


async def migrate(url: str) -> None:
    """Migrate the database to the newest schema, waiting a while if it is still starting."""
    deadline = time.monotonic() + DATABASE_PATIENCE_SECONDS
    while True:
        try:
            await asyncio.to_thread(schema.upgrade, url)
            return
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"the database does not answer: {error.orig}") from None
            log.warning("the database does not answer yet: %s", error.orig)
        await asyncio.sleep(1)


async def parent_gone(parent: int) -> None:
    """Return when the parent process has ended: a new Hub starts its own manager."""
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(STEP_SECONDS)


def cookie_secret(settings: Settings) -> bytes:
    """Return the key of our cookies: the same after a restart, so that open pages keep working."""
    return hashlib.sha256(b"bai cookies" + settings.key).digest()


async def serve(environ: Mapping[str, str], sockets: Sequence[socket.socket]) -> None:
    """Serve until SIGTERM, SIGINT or the end of the Hub."""
    settings = read_settings(environ)
    has_hub = bool(settings.hub_api_url and settings.hub_api_token)
    await migrate(settings.database_url)
    manager = Manager(settings, Database(settings.database_url))
    oauth = HubOAuth.instance(cache_max_age=TOKEN_CACHE_SECONDS) if has_hub else None
    app = make_app(
        manager,
        SignIn(manager, oauth),
        hub_oauth=oauth,
        cookie_secret=cookie_secret(settings),
    )
    server = HTTPServer(app, chunk_size=BODY_CHUNK_BYTES)
    # Install the signal handlers first: a client that gets a response may stop the manager.
    stop = _stop_requested()
    server.add_sockets(sockets)
    await manager.start()
    host, port = sockets[0].getsockname()[:2]
    log.info("the manager listens on http://%s:%d%s", host, port, settings.base_url)
    try:
        await _until(stop, parent=os.getppid() if has_hub else None)
    finally:
        log.info("the manager stops")
        server.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.close_all_connections(), STOP_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(manager.stop(), STOP_SECONDS)


def _stop_requested() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _until(stop: asyncio.Event, parent: int | None) -> None:
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    if parent is not None:
        waits.append(asyncio.create_task(parent_gone(parent)))
    _, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
