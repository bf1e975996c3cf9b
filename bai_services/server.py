"""The manager process: migrate the database, serve requests, shut down in order."""

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

from bai_services import tracing
from bai_services.api.accounts.sign_in import TOKEN_CACHE_SECONDS, SignIn
from bai_services.api.app import make_app
from bai_services.api.base import BODY_CHUNK_BYTES
from bai_services.core.installation import systemd
from bai_services.db import schema
from bai_services.db.database import Database
from bai_services.environment import read_settings
from bai_services.manager.manager import Manager
from bai_services.manager.operations.configuration import with_overrides
from bai_services.manager.scheduling.idle_scheduling import new_loop
from bai_services.manager.settings import Settings

DATABASE_TIMEOUT_SECONDS = 45.0
PARENT_POLL_SECONDS = 0.5
# Time for requests in progress, other than long polls and streams, to end before the shutdown.
REQUEST_SECONDS = 3.0
# Timeout of each step of the shutdown.
STOP_TIMEOUT_SECONDS = 10.0

log = logging.getLogger("bai.manager")


def run(environ: Mapping[str, str], sockets: Sequence[socket.socket], parent: int) -> None:
    """Serve on listening sockets until the process is stopped.

    ``parent``: the process ID of the process that started the manager.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(environ, sockets, parent))


async def migrate(url: str) -> None:
    """Migrate the database to the newest schema; wait up to 45 s for a database that is starting.

    Raises
    ------
    SystemExit
        If the database does not respond in time, or a migration fails.
    """
    deadline = time.monotonic() + DATABASE_TIMEOUT_SECONDS
    while True:
        try:
            await asyncio.to_thread(schema.upgrade, url)
            return
        except schema.MigrationFailed as error:
            log.error("%s", error, exc_info=error.__cause__)
            raise SystemExit(systemd.NO_RESTART_EXIT_CODE) from None
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"the database does not respond: {error.orig}") from None
            log.warning("the database does not respond yet: %s", error.orig)
        await asyncio.sleep(1)


async def wait_for_parent_exit(parent: int) -> None:
    """Return when the parent process has ended: a new Hub starts its own manager."""
    while os.getppid() == parent:  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(PARENT_POLL_SECONDS)


def cookie_secret(settings: Settings) -> bytes:
    """Return the key that signs cookies; it is stable, so that open pages survive a restart."""
    return hashlib.sha256(b"bai cookies" + settings.key).digest()


async def serve(environ: Mapping[str, str], sockets: Sequence[socket.socket], parent: int) -> None:
    """Serve until SIGTERM, SIGINT or the end of the Hub process."""
    settings = read_settings(environ)
    tracing.set_up("bai-manager", environ)
    has_hub = bool(settings.hub_api_url and settings.hub_api_token)
    await migrate(settings.database_url)
    database = Database(settings.database_url)
    settings = await with_overrides(settings, database)
    manager = Manager(settings, database)
    oauth = HubOAuth.instance(cache_max_age=TOKEN_CACHE_SECONDS) if has_hub else None
    app = make_app(
        manager,
        SignIn(manager, oauth),
        hub_oauth=oauth,
        cookie_secret=cookie_secret(settings),
    )
    server = HTTPServer(app, chunk_size=BODY_CHUNK_BYTES)
    # Install the signal handlers first: SIGTERM may arrive as soon as the manager responds.
    stop = _install_stop_signals()
    server.add_sockets(sockets)
    await manager.start()
    host, port = sockets[0].getsockname()[:2]
    log.info("the manager listens on http://%s:%d%s", host, port, settings.base_url)
    try:
        await _wait_for_stop(stop, parent if has_hub else None)
    finally:
        log.info("the manager is stopping")
        server.stop()
        await app.settings["running_requests"].end(REQUEST_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.close_all_connections(), STOP_TIMEOUT_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(manager.stop(), STOP_TIMEOUT_SECONDS)


def _install_stop_signals() -> asyncio.Event:
    """Install signal handlers; return the event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _wait_for_stop(stop: asyncio.Event, parent: int | None) -> None:
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    if parent is not None:
        waits.append(asyncio.create_task(wait_for_parent_exit(parent)))
    _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
