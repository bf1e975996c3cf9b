"""Script ``killable_manager.py HOME PORT``: a manager process that a test can kill and restart.

Prints the manager's URL, the access key and secret key of ``user``, the id of a folder, and the
manager's port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from bai_services.api.accounts.sign_in import SignIn
from bai_services.api.app import make_app
from tests.testbed.manager import MovableClock, make_world, manager_on


async def main(home: Path, port: int) -> None:
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
        print(url, facts["access"], facts["secret"], facts["folder"], port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
