"""When the disk of the database is full, writes fail with a clear error; later they succeed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import Unavailable
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.sessions.store import SessionStore
from bai_services.manager.scheduling.jit_warmup import warm_up
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving
from tests.testbed.postgres import Postgres
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until_async

MIB = 2**20
MAX_TRIES = 2_000


class SmallDisk:
    """A small file system that contains the database at ``url``."""

    def __init__(self, path: Path, url: str) -> None:
        self.url = url
        self._filler = path / "filler"

    def fill(self) -> None:
        """Use all free space."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free_space(self) -> None:
        self._filler.unlink()


@contextmanager
def mounted_disk(path: Path, mib: int) -> Iterator[None]:
    """Mount a file system of ``mib`` MiB that belongs to the owner of ``path``."""
    owner = path.stat()
    options = f"size={mib}m,uid={owner.st_uid},gid={owner.st_gid},mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        skip_or_fail("mount", f"no small file system can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def sqlite_disk(path: Path, migrated: Path) -> Iterator[SmallDisk]:
    path.mkdir()
    with mounted_disk(path, 16):
        shutil.copy(migrated, path / "bai.sqlite")
        yield SmallDisk(path, f"sqlite+aiosqlite:///{path}/bai.sqlite")


@contextmanager
def postgres_disk(server: Postgres, migrated: str) -> Iterator[SmallDisk]:
    """Yield a database whose tables, but not its write-ahead log, are on a small disk."""
    path, name = server.folder / "small", "small"
    path.mkdir()
    shutil.chown(path, (server.folder / "data").owner(), (server.folder / "data").group())
    with mounted_disk(path, 48):
        server.execute(f"CREATE TABLESPACE {name} LOCATION '{path}'")
        server.execute(
            f'CREATE DATABASE {name} TEMPLATE "{migrated}" TABLESPACE {name} STRATEGY file_copy'
        )
        try:
            yield SmallDisk(path, server.url(name))
        finally:
            server.drop_database(name)
            server.execute(f"DROP TABLESPACE {name}")
    path.rmdir()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "sqlite":
        with sqlite_disk(tmp_path / "small", request.getfixturevalue("migrated_sqlite")) as made:
            yield made
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    with postgres_disk(server, request.getfixturevalue("migrated_postgres")) as made:
        yield made


@pytest.fixture
async def api(disk: SmallDisk, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Api]:
    async with (
        manager_on(disk.url, tmp_path / "home", clock) as manager,
        serving(await make_world(manager, clock)) as served,
    ):
        yield served


async def fill_with_objects(client: Client, path: str, **spec: object) -> tuple[list[str], str]:
    """Create objects until the disk is full; return the created names and the rejected name."""
    made: list[str] = []
    for number in range(MAX_TRIES):
        name = f"full-{number}"
        try:
            await client.post(path, {"name": name, **spec})
        except Unavailable as error:
            assert "free space" in error.message and "nothing was changed" in error.message
            assert error.details == {"reason": "database-full"}
            return made, name
        made.append(name)
    raise AssertionError("the disk was never full")


async def test_writes_fail_while_the_disk_is_full_and_succeed_with_free_space(
    api: Api, disk: SmallDisk
) -> None:
    manager, store = api.world.manager, SessionStore(api.world.manager.database)
    agent = FakeAgent(api.agent)
    await agent.beat()
    await warm_up()  # JIT compilation may take longer than the timeouts below
    await manager.start()
    admin, user = await api.client("admin"), await api.client("user")

    async def is_scheduled(session_id: str) -> bool:
        return (await store.find(session_id)).status is Status.SCHEDULED

    # The policy must not limit the number of sessions: only the disk should do so.
    await admin.patch("/keypair-policies/default", {"max_concurrent_sessions": MAX_TRIES})
    waiting = await user.post("/sessions", {"name": "before", "project": "default"})
    await wait_until_async(lambda: is_scheduled(waiting["id"]), 120, "the first session")

    disk.fill()
    done, rejected = await fill_with_objects(admin, "/projects", domain="default")
    created, not_created = await fill_with_objects(
        user, "/sessions", project="default", enqueue_only=True
    )
    # Reads succeed, although the time of the keypair's last use cannot be stored.
    api.world.clock.advance(minutes=6)
    monitor = await api.client("monitor")
    assert (await monitor.get("/me"))["username"] == "monitor"
    assert (await admin.get("/projects", name=rejected))["total"] == 0
    assert (await admin.get("/sessions", name=not_created))["total"] == 0
    async with httpx.AsyncClient() as http:
        health = await http.get(f"{api.url}/api/v1/health")
    assert health.json()["database"] is True

    disk.free_space()
    await agent.beat()
    made = await user.post("/sessions", {"name": "after", "project": "default"})
    await wait_until_async(lambda: is_scheduled(made["id"]), 90, "the scheduler to continue")
    names = {item["name"] async for item in admin.items("/sessions")}
    assert names == {"before", "after", *created}
    for name in done:
        assert (await admin.get(f"/projects/default%2F{name}"))["name"] == name
    assert await manager.sessions.records.check_consistency() == []
    await manager.stop_session_loops()
    if manager.database.is_sqlite:
        async with manager.database.read() as tx:
            assert await tx.scalar(sa.text("PRAGMA integrity_check")) == "ok"
