"""A manager on each database, its clock, and the demo in it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bai_services.db import schema
from bai_services.manager.manager import Manager
from tests.testbed.manager import MovableClock, World, make_world, manager_on
from tests.testbed.postgres import Postgres


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "bai.sqlite"
    schema.upgrade(f"sqlite+aiosqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def _migrated_postgres(postgres_server: Postgres) -> str:
    name = postgres_server.create_database()
    schema.upgrade(postgres_server.url(name))
    return name


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    _migrated_sqlite: Path,
) -> Iterator[str]:
    """The URL of a fresh database with the newest schema: a copy, as migrating takes longer."""
    if request.param == "sqlite":
        shutil.copy(_migrated_sqlite, tmp_path / "bai.sqlite")
        yield f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite"
        return
    server = request.getfixturevalue("postgres_server")
    with server.database(request.getfixturevalue("_migrated_postgres")) as url:
        yield url


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def manager(database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Manager]:
    """An empty manager; its loops do not run unless the test starts them."""
    async with manager_on(database_url, tmp_path, clock) as made:
        yield made


@pytest.fixture
async def world(manager: Manager, clock: MovableClock) -> World:
    """The manager with the demo in it."""
    return await make_world(manager, clock)
