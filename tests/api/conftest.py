"""The manager's real HTTP server on each database, with the demo in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bai_services.client import Client
from tests.manager.conftest import (
    _filed_postgres,
    _filed_sqlite,
    _migrated_postgres,
    _migrated_sqlite,
    clock,
    database_url,
    manager,
    world,
)
from tests.testbed.agent_voice import AgentVoice
from tests.testbed.manager import Api, World, serving

__all__ = [
    "_filed_postgres",
    "_filed_sqlite",
    "_migrated_postgres",
    "_migrated_sqlite",
    "api",
    "clock",
    "database_url",
    "manager",
    "world",
]


@pytest.fixture
async def api(world: World) -> AsyncIterator[Api]:
    """A server and its clients: ``await api.client("user")``, ``api.hub``, ``api.agent``."""
    async with serving(world) as served:
        yield served


@pytest.fixture
async def agent(api: Api) -> AsyncIterator[AgentVoice]:
    """An agent of the demo's group that has said hello, beside running loops."""
    voice = AgentVoice(api.agent)
    await voice.beat()
    await api.world.manager.start()
    yield voice
    await api.world.manager.session_parts.stop()
    assert await api.world.manager.ledger.audit() == []


@pytest.fixture
async def user(api: Api) -> Client:
    return await api.client("user")
