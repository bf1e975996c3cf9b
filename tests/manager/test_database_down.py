"""During a database outage, requests fail with an error; afterwards they succeed again."""

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


class Outage:
    """Blocks new connections to a database and closes the open ones."""

    def __init__(self, server: Postgres, url: str) -> None:
        self._server = server
        self._name = sa.make_url(url).database
        self.url = url

    def begin(self) -> None:
        self._server.execute(f'ALTER DATABASE "{self._name}" ALLOW_CONNECTIONS false')
        self._server.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            f"WHERE datname = '{self._name}'"
        )

    def end(self) -> None:
        self._server.execute(f'ALTER DATABASE "{self._name}" ALLOW_CONNECTIONS true')


@pytest.fixture
def outage(postgres_server: Postgres, migrated_postgres: str) -> Iterator[Outage]:
    with postgres_server.database(migrated_postgres) as url:
        yield Outage(postgres_server, url)


@pytest.fixture
async def api(outage: Outage, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Api]:
    async with (
        manager_on(outage.url, tmp_path, clock) as manager,
        serving(await make_world(manager, clock)) as served,
    ):
        yield served


async def test_requests_fail_during_a_database_outage_and_succeed_after_it(
    api: Api, outage: Outage
) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    user = await api.client("user")
    await user.post("/sessions", {"name": "before", "project": "default"})

    outage.begin()
    for _ in range(3):
        with pytest.raises(Unavailable, match="the database cannot be reached; try again"):
            await user.post("/sessions", {"name": "meanwhile", "project": "default"})
    with pytest.raises(Unavailable):
        await agent.beat()
    async with httpx.AsyncClient() as http:
        health = await http.get(f"{api.url}/api/v1/health")
    assert (health.status_code, health.json()["database"]) == (503, False)

    outage.end()
    await agent.beat()
    await user.post("/sessions", {"name": "after", "project": "default"})
    names = {item["name"] async for item in user.items("/sessions")}
    assert names == {"before", "after"}
