"""A manager process that a test can kill and restart."""

from __future__ import annotations

import asyncio
import json
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from bai_services.api.accounts.sign_in import SignIn
from bai_services.api.app import make_app
from tests.testbed import forked
from tests.testbed.manager import MovableClock, make_world, manager_on


async def _run(home: Path, port: int, facts_of: Connection) -> None:
    state = home / "state.json"
    facts = json.loads(state.read_text()) if state.exists() else None
    # By default, each process gets a new encryption key. After a restart, use the key of the
    # previous process.
    options = {} if facts is None else {"key": facts["key"].encode()}
    database = f"sqlite+aiosqlite:///{home}/bai.sqlite"
    async with manager_on(database, home, MovableClock(), **options) as manager:
        await manager.folders.vfolders.start()
        if facts is None:
            world = await make_world(manager, manager.clock)  # type: ignore[arg-type]
            folder = await manager.folders.vfolders.create(
                await world.caller("user"), {"name": "data"}
            )
            keys = world.keys["user"]
            facts = {
                "access": keys.access_key,
                "secret": keys.secret_key,
                "folder": folder.id,
                "key": manager.settings.key.decode(),
            }
            state.write_text(json.dumps(facts))
        server = HTTPServer(make_app(manager, SignIn(manager)))
        sockets = bind_sockets(port, "127.0.0.1")
        server.add_sockets(sockets)
        port = sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}{manager.settings.base_url}"
        facts_of.send([url, facts["access"], facts["secret"], facts["folder"], str(port)])
        await asyncio.Event().wait()


def run(home: Path, port: int, facts_of: Connection) -> None:
    asyncio.run(_run(home, port, facts_of))


class KillableManager:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: ForkServerProcess | None = None

    def start(self, port: int = 0) -> list[str]:
        """Return the URL, the access key and secret key of ``user``, a folder's id, and the port.

        With ``port``, the manager listens there.
        """
        facts, facts_of = Pipe(duplex=False)
        with facts, facts_of:
            self._process = forked.start(run, self._home, port, facts_of)
            # Close this copy, so that ``recv`` fails if the process exits.
            facts_of.close()
            found: list[str] = facts.recv()
            return found

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.join(30)
