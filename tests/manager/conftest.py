"""A manager on each database, its clock, and the demo in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bai_services.db import schema
from bai_services.manager.manager import Manager
from tests.testbed.manager import (
    MovableClock,
    World,
    create_demo,
    known_world,
    manager_on,
    sqlite_copy,
)
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


@pytest.fixture(scope="session")
def _filed_sqlite(_migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filed")
    asyncio.run(create_demo(sqlite_copy(_migrated_sqlite, folder), folder))
    return folder / "bai.sqlite"


@pytest.fixture(scope="session")
def _filed_postgres(
    postgres_server: Postgres, _migrated_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    name = postgres_server.create_database(_migrated_postgres)
    asyncio.run(create_demo(postgres_server.url(name), tmp_path_factory.mktemp("filed")))
    return name


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh database, with the demo where the test asks for its world.

    A copy: to migrate takes longer, and to file the demo longer still.
    """
    stage = "filed" if "world" in request.fixturenames else "migrated"
    template = request.getfixturevalue(f"_{stage}_{request.param}")
    if request.param == "sqlite":
        yield sqlite_copy(template, tmp_path)
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    with server.database(template) as url:
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
    return await known_world(manager, clock)
