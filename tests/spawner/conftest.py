"""Fixtures: a manager with its HTTP server, an agent that prepares sessions, and a Hub."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.engines import processes
from bai_services.manager.scheduling.jit_warmup import warm_up
from tests.spawner.bare_hub import BareHub
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import HUB_TOKEN, Api


@pytest.fixture
async def agent(api: Api) -> AsyncIterator[FakeAgent]:
    """An agent that prepares no sessions; the background tasks of the manager run."""
    # Load the compiled code now: loading it blocks this process, and a request would have to wait.
    await warm_up()
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    await api.world.manager.start()
    yield fake_agent
    await api.world.manager.stop_session_loops()


@pytest.fixture
async def preparing(agent: FakeAgent) -> AsyncIterator[FakeAgent]:
    """The same agent as ``agent``, except that it prepares every session that it gets."""

    async def prepare() -> None:
        while True:
            for item in await agent.work(5):
                await agent.report(item, injection={"notices": ["prepared by a test"]})

    task = asyncio.create_task(prepare())
    yield agent
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def bare_hub(api: Api, tmp_path: Path) -> AsyncIterator[BareHub]:
    """A Hub that the test must start; its remaining sessions are killed after the test."""
    folder = tmp_path / "hub"
    folder.mkdir()
    hub = BareHub(folder, api.url, HUB_TOKEN)
    yield hub
    await hub.close()
    for session in (folder / "sessions").glob("*"):
        await asyncio.to_thread(processes.kill_session, session.name)


@pytest.fixture
async def hub(bare_hub: BareHub) -> BareHub:
    """The Hub of ``bare_hub``, running, with the user ``user``."""
    await bare_hub.start_with_user()
    return bare_hub
