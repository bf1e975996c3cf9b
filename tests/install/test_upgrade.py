"""Upgrade of an installation to a later version while its sessions run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from bai_services.core.cluster.protocol import PROTOCOL
from bai_services.core.installation.systemd import NO_RESTART_EXIT_CODE
from bai_services.db import schema
from tests.install import later_version
from tests.install.installation import (
    HOST,
    PROGRAM,
    RunningInstallation,
    free_port_range,
    run_bai_hub,
    start_session,
    write_certificate,
)
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PASSWORD = "Correct-horse-7"
RESTARTED = ("hub", "manager", "gateway")


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[RunningInstallation]:
    certificate, key = write_certificate(tmp_path / "tls")
    password_file = tmp_path / "password"
    password_file.write_text(f"{PASSWORD}\n")
    first = free_port_range(6)
    options = ["--host", HOST, "--port", first + 5, "--internal-ports", first]
    options += ["--certificate", certificate, "--certificate-key", key, "--user", "root"]
    options += ["--engine", "process", "--state", tmp_path / "state"]
    options += ["--admin", "root-user", "--admin-email", "root@example.com"]
    options += ["--admin-password-file", password_file]
    run_bai_hub(PROGRAM, "init", tmp_path / "etc", *map(str, options))
    running = RunningInstallation(
        tmp_path / "etc", tmp_path / "state", first + 5, certificate, PASSWORD
    )
    try:
        running.start()
        yield running
    finally:
        running.stop()


class Terminal:
    """A terminal of a session in an open browser tab: one websocket through the proxy."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket = socket
        self._count = 0

    async def run(self, command: str) -> str:
        """Run a command; return the output."""
        self._count += 1
        mark = f"end-{self._count}"
        # The shell shows the command too, so the mark is in two parts there.
        line = f"{command}; echo end'-'{self._count}\r"
        await self._socket.write_message(json.dumps(["stdin", line]))
        shown = ""
        while mark not in shown:
            message: Any = await asyncio.wait_for(self._socket.read_message(), 30)
            assert message is not None, f"the websocket was closed: {shown}"
            kind, *content = json.loads(message)
            if kind == "stdout":
                shown += content[0]
        return shown


@asynccontextmanager
async def terminal(
    installation: RunningInstallation, rest: httpx.Client, session: Any
) -> AsyncIterator[Terminal]:
    headers = {"Authorization": rest.headers["Authorization"]}
    with installation.client(**headers) as client:
        name = client.post(f"{session['url']}api/terminals").json()["name"]
    url = f"wss://{HOST}:{installation.port}{session['url']}terminals/websocket/{name}"
    request = HTTPRequest(url, headers=headers, ca_certs=str(installation.certificate))
    socket = await websocket_connect(request)
    try:
        yield Terminal(socket)
    finally:
        socket.close()
        while await socket.read_message() is not None:
            pass


def let_sessions_read(folder: Path, path: str) -> None:
    """Add a readable path to the configuration of the Hub."""
    config = folder / "hub.py"
    config.write_text(f"c.ProcessEngine.readable_paths = [{path!r}]\n")
    settings = folder / "bai-hub.toml"
    text = settings.read_text()
    assert "[service]" in text
    settings.write_text(text.replace("[service]", f'[service]\nhub_config = "{config}"'))


def status_of(rest: httpx.Client, session: Any) -> Any:
    return rest.get(f"/sessions/{session['id']}").json()


async def test_sessions_continue_during_an_upgrade(
    installation: RunningInstallation, tmp_path: Path
) -> None:
    new = later_version.install(tmp_path / "new")
    folder, before = installation.folder, schema.revisions()[-1]
    database = f"sqlite:///{installation.state}/bai.sqlite"
    with installation.rest() as rest:
        made = rest.post("/vfolders", json={"name": "results"})
        assert made.status_code == 201, made.text
        mounts = [{"vfolder": "results", "path": "/home/work/results", "permission": "rw"}]
        session = await asyncio.to_thread(start_session, installation, rest, mounts=mounts)
        # It ends when the other session has written a file.
        command = "while [ ! -e results/end ]; do sleep 0.2; done; cp results/end results/copy"
        batch = await asyncio.to_thread(
            start_session,
            installation,
            rest,
            mounts=mounts,
            type="batch",
            startup_command=command,
        )
        async with terminal(installation, rest, session) as shell:
            assert "42" in await shell.run("ANSWER=$((6 * 7)); echo $ANSWER")

            # The migration fails: nothing has changed, and the former manager starts again.
            new.write_migration('op.execute("UPDATE no_such_table SET a = 1")')
            done = await asyncio.to_thread(
                run_bai_hub, new.program, "upgrade", "--check", folder, code=1
            )
            assert f"migration {new.revision}: A migration of the later version" in done.stdout
            await asyncio.to_thread(installation.stop_components, "manager")
            words = [str(new.program), "run", "manager", str(folder)]
            failed = await asyncio.create_subprocess_exec(
                *words, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            _, errors = await failed.communicate()
            assert failed.returncode == NO_RESTART_EXIT_CODE
            assert f"rolled back to revision {before}: no such table" in errors.decode()
            assert schema.current(database) == before
            await asyncio.to_thread(installation.start, "manager")
            assert status_of(rest, session)["status"] == "RUNNING"

            # The upgrade, as the manual describes it: the proxy and the agent keep running.
            new.write_migration()
            let_sessions_read(folder, sys.prefix)
            await asyncio.to_thread(run_bai_hub, new.program, "init", folder)
            assert str(new.program) in installation.exec_start("manager")
            await asyncio.to_thread(installation.stop_components, *RESTARTED)
            await asyncio.to_thread(installation.start, *RESTARTED)
            assert schema.current(database) == new.revision
            # The same websocket, shell and token.
            assert "42" in await shell.run("echo $ANSWER")
            for one in (session, batch):
                found = status_of(rest, one)
                assert (found["status"], found["restart_count"]) == ("RUNNING", 0)
            agent = rest.get("/agents").json()["items"][0]
            assert (agent["status"], agent["facts"]["protocol"]) == ("ALIVE", PROTOCOL)

            await asyncio.to_thread(installation.stop_components, "agent")
            await asyncio.to_thread(installation.start, "agent")
            await asyncio.to_thread(
                wait_until,
                lambda: rest.get("/agents").json()["items"][0]["facts"]["protocol"] == PROTOCOL + 1,
                60,
                "the heartbeat of the new agent",
            )
            assert "done" in await shell.run("echo done > results/end; cat results/end")
            await asyncio.to_thread(
                wait_until,
                lambda: status_of(rest, batch)["status"] == "TERMINATED",
                60,
                "the end of the batch session",
            )
            ended = status_of(rest, batch)
            assert (ended["result"], ended["exit_code"]) == ("success", 0)
            assert ended["restart_count"] == 0
            later = await asyncio.to_thread(start_session, installation, rest, mounts=mounts)
            assert "done" in await shell.run("cat results/copy")
        for one in (session, later):
            rest.delete(f"/sessions/{one['id']}")
        await asyncio.to_thread(run_bai_hub, new.program, "upgrade", "--check", folder)
