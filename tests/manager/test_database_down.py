"""A database outage under a manager: callers get an error, and everything works again
afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from bai_services.core.errors import Unavailable
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving
from tests.testbed.postgres import Postgres


class Shutter:
    """Blocks new connections to a database and closes the open ones."""

    def __init__(self, server: Postgres, url: str) -> None:
        self._server = server
        self._name = sa.make_url(url).database
        self.url = url

    def close(self) -> None:
        self._server.execute(f'ALTER DATABASE "{self._name}" ALLOW_CONNECTIONS false')
        self._server.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            f"WHERE datname = '{self._name}'"
        )

    def open(self) -> None:
        self._server.execute(f'ALTER DATABASE "{self._name}" ALLOW_CONNECTIONS true')


@pytest.fixture
def shutter(postgres_server: Postgres, migrated_postgres: str) -> Iterator[Shutter]:
    with postgres_server.database(migrated_postgres) as url:
        yield Shutter(postgres_server, url)


@pytest.fixture
async def api(shutter: Shutter, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Api]:
    async with (
        manager_on(shutter.url, tmp_path, clock) as manager,
        serving(await make_world(manager, clock)) as served,
    ):
        yield served


async def test_a_database_that_is_down_and_comes_back(api: Api, shutter: Shutter) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    user = await api.client("user")
    await user.post("/sessions", {"name": "before", "project": "default"})

    shutter.close()
    for _ in range(3):
        with pytest.raises(Unavailable, match="the database cannot be reached; try again"):
            await user.post("/sessions", {"name": "meanwhile", "project": "default"})
    with pytest.raises(Unavailable):
        await agent.beat()
    async with httpx.AsyncClient() as http:
        health = await http.get(f"{api.url}/api/v1/health")
    assert (health.status_code, health.json()["database"]) == (503, False)

    shutter.open()
    await agent.beat()
    await user.post("/sessions", {"name": "after", "project": "default"})
    names = {item["name"] async for item in user.items("/sessions")}
    assert names == {"before", "after"}
