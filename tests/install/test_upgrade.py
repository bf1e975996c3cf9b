"""Upgrade of an installation to a later version while its sessions run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
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
from tests.install.test_installation import two_databases
from tests.testbed import images
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.postgres import Postgres
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PASSWORD = "Correct-horse-7"
RESTARTED = ("hub", "manager", "gateway")
IS_SOAK = bool(os.environ.get("BAI_UPGRADE_SOAK"))


@contextmanager
def running(folder: Path, *options: str, **environment: str) -> Iterator[RunningInstallation]:
    """Run an installation with additional options of `bai-hub init` and additional variables."""
    certificate, key = write_certificate(folder / "tls")
    password_file = folder / "password"
    password_file.write_text(f"{PASSWORD}\n")
    first = free_port_range(6)
    words = ["--host", HOST, "--port", first + 5, "--internal-ports", first]
    words += ["--certificate", certificate, "--certificate-key", key, "--user", "root"]
    words += ["--state", folder / "state"]
    words += ["--admin", "root-user", "--admin-email", "root@example.com"]
    words += ["--admin-password-file", password_file, *options]
    run_bai_hub(PROGRAM, "init", folder / "etc", *map(str, words))
    if environment:
        lines = [f'{name} = "{value}"' for name, value in environment.items()]
        with open(folder / "etc/bai-hub.toml", "a") as settings:
            settings.write("\n".join(["", "[environment]", *lines, ""]))
        run_bai_hub(PROGRAM, "init", folder / "etc")
    made = RunningInstallation(folder / "etc", folder / "state", first + 5, certificate, PASSWORD)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@dataclass(frozen=True)
class Case:
    """An installation, the URL of its database, and the error for a table that is missing there."""

    installation: RunningInstallation
    database: str
    no_table: str


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Case]:
    """An installation with SQLite and the process engine."""
    with running(tmp_path, "--engine", "process") as made:
        yield Case(made, f"sqlite:///{made.state}/bai.sqlite", "no such table")


@pytest.fixture
def on_postgres(
    tmp_path: Path,
    postgres_server: Postgres,
    docker_engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Case]:
    """An installation with PostgreSQL and Docker."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine.host)
    image = images.minimal_image(docker_engine)
    with two_databases(postgres_server) as database:
        options = ["--engine", "docker", "--image", image, "--database", database]
        with running(tmp_path, *options, DOCKER_HOST=docker_engine.host) as made:
            url = database.replace("postgresql:", "postgresql+psycopg:")
            yield Case(made, url, 'relation "no_such_table" does not exist')


class Terminal:
    """A terminal of a session in an open browser tab: one websocket through the proxy."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket = socket
        self._count = 0

    async def run(self, command: str) -> str:
        """Run a command; return the output."""
        self._count += 1
        mark = f"end-{self._count}"
        # The terminal echoes the command. Split the mark in it, so that only the output contains
        # the whole mark.
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


async def test_sessions_continue_during_an_upgrade(on_sqlite: Case, tmp_path: Path) -> None:
    await sessions_continue(on_sqlite, tmp_path)


@pytest.mark.docker
@pytest.mark.postgres
@pytest.mark.skipif(not IS_SOAK, reason="takes over 60 s: part of `make soak`")
async def test_sessions_of_docker_continue_during_an_upgrade_with_postgresql(
    on_postgres: Case, tmp_path: Path
) -> None:
    await sessions_continue(on_postgres, tmp_path)


async def sessions_continue(case: Case, tmp_path: Path) -> None:
    new = later_version.install(tmp_path / "new")
    installation, database = case.installation, case.database
    folder, before = installation.folder, schema.revisions()[-1]
    with installation.rest() as rest:
        made = rest.post("/vfolders", json={"name": "results"})
        assert made.status_code == 201, made.text
        mounts = [{"vfolder": "results", "path": "/home/work/results", "permission": "rw"}]
        session = await asyncio.to_thread(start_session, installation, rest, mounts=mounts)
        # This session ends when the other session has written a file.
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
            assert f"rolled back to revision {before}" in errors.decode()
            assert case.no_table in errors.decode()
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
        await asyncio.to_thread(
            wait_until,
            lambda: all(status_of(rest, one)["status"] == "TERMINATED" for one in (session, later)),
            60,
            "the end of the sessions",
        )
        await asyncio.to_thread(run_bai_hub, new.program, "upgrade", "--check", folder)
