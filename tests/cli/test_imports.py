"""`bai import` and `bai imports`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.manager import Manager
from tests.testbed.git_server import GitServer, serve_git
from tests.testbed.manager import Api, MovableClock, manager_on

from .conftest import Bai


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GitServer]:
    async with serve_git(tmp_path / "git") as served:
        monkeypatch.setenv("SSL_CERT_FILE", str(served.certificate))
        yield served


@pytest.fixture
async def manager(
    database_url: str, tmp_path: Path, clock: MovableClock, server: GitServer
) -> AsyncIterator[Manager]:
    settings = {"import_reach": AllowedTargets.parse("", "127.0.0.0/8")}
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **settings) as made:
        await made.folders.vfolders.start()
        yield made


async def test_repository_is_imported_listed_and_cancelled(
    bai: Bai, api: Api, server: GitServer
) -> None:
    server.commit(
        server.repository("course"),
        [("100644", "a.txt", b"a"), ("120000", "link", b"a.txt")],
    )
    url = f"{server.url}/course.git"
    api.world.manager.imports.runner.start()
    done = await bai("import", url, "--branch", "main", by="user")
    assert done.stdout == f"{url} imported into folder course; not imported: 1 symbolic links\n"
    failed = await bai("import", url, "--branch", "absent", by="user")
    assert (failed.code, "no such branch" in failed.stderr) == (1, True)
    await api.world.manager.imports.runner.stop()
    queued = await bai("import", url, "--no-wait", "--json", by="user")
    assert queued.document["status"] == "queued"
    assert "queued" in (await bai("imports", "list", by="user")).stdout
    cancelled = await bai("imports", "cancel", queued.document["id"], by="user")
    assert cancelled.stdout == f"import of {url} cancelled\n"
    assert (await bai("import", url, "--start", "--no-wait", by="user")).code == 2
