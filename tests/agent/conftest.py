"""Fixtures: a manager with the demo data, and agent processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bai_services.client import Client
from tests.testbed.manager import (
    AGENT_TOKEN,
    Api,
    MovableClock,
    known_world,
    manager_on,
    serving,
)
from tests.testbed.wait import wait_until_async

# Each test process has a separate agent id. An agent stops processes that are tagged with its id
# and unknown to its manager, even those of another test.
AGENT_ID = f"m{os.getpid()}"


@pytest.fixture
def agent_home(tmp_path: Path) -> Path:
    home = tmp_path / "agent"
    home.mkdir()
    return home


@pytest.fixture
async def api(demo_database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Api]:
    """The API of a manager whose background loops are running."""
    async with (
        manager_on(
            demo_database_url, tmp_path, clock, is_migrated=True, heartbeat_interval_seconds=1
        ) as manager,
        serving(await known_world(manager, clock)) as served,
    ):
        await manager.start()
        yield served


@dataclass
class RunningAgent:
    """One agent process; ``log`` is the file with its output."""

    id: str
    home: Path
    process: subprocess.Popen[bytes]
    log: Path

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait, 10)

    async def stop(self) -> int:
        """Stop the agent, which notifies the manager, and return its exit code."""
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, 15)


@dataclass
class Agents:
    """Starts agent processes, and ends them when the test ends."""

    api: Api
    home: Path
    started: list[RunningAgent] = field(default_factory=list)
    last_heartbeats: dict[str, str] = field(default_factory=dict)

    async def start(
        self, agent_id: str = AGENT_ID, words: Sequence[str] = (), **environ: str
    ) -> RunningAgent:
        """Start an agent with the command prefix ``words``; wait until it is registered."""
        token = self.home / "token"
        token.write_text(AGENT_TOKEN)
        log = self.home / f"{agent_id}-{len(self.started)}.log"
        settings = {
            "BAI_MANAGER_URL": self.api.url,
            "BAI_AGENT_TOKEN_FILE": str(token),
            "BAI_AGENT_ID": agent_id,
            "BAI_AGENT_CPU": "8",
            "BAI_AGENT_MEM": "16g",
            "BAI_HOME": str(self.home),
        }
        process = launch({**settings, **environ}, log, words)
        agent = RunningAgent(agent_id, self.home, process, log)
        self.started.append(agent)
        admin = await self.api.client("admin")

        async def is_alive() -> bool:
            if process.poll() is not None:
                pytest.fail(f"the agent ended: {log.read_text()}")
            page = await admin.get("/agents", id=agent_id, status="ALIVE")
            return bool(page["total"])

        await wait_until_async(is_alive, 30, f"agent {agent_id} to be registered")
        return agent

    async def time_passes(self, agent_id: str, seconds: float) -> None:
        """Advance the clock if the agent has sent a heartbeat since the previous call.

        A test that polls with this method lets time pass, but the agent does not become LOST.
        """
        clock = self.api.world.clock
        agent = await (await self.api.client("admin")).get(f"/agents/{agent_id}")
        if agent["last_heartbeat_at"] != self.last_heartbeats.get(agent_id):
            self.last_heartbeats[agent_id] = agent["last_heartbeat_at"]
            clock.advance(seconds=seconds)

    async def end(self) -> None:
        for agent in self.started:
            if agent.process.poll() is None:
                try:
                    await agent.stop()
                except subprocess.TimeoutExpired:
                    await agent.kill()


def launch(
    environ: Mapping[str, str], log: Path, words: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start an agent process. Its ``BAI_`` variables are only those in ``environ``."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("BAI_")}
    with open(log, "wb") as output:
        return subprocess.Popen(
            [*words, sys.executable, "-m", "bai_services.agent"],
            env={**kept, **environ},
            stdout=output,
            stderr=output,
        )


@pytest.fixture
async def agents(api: Api, agent_home: Path) -> AsyncIterator[Agents]:
    made = Agents(api, agent_home)
    yield made
    await made.end()


async def wait_for_session(
    client: Client, key: str, condition: Callable[[dict[str, object]], object], seconds: float = 30
) -> dict[str, object]:
    """Wait until ``condition`` is true for the session, and return the session."""
    session: dict[str, object] = {}

    async def is_reached() -> object:
        session.clear()
        session.update(await client.get(f"/sessions/{key}"))
        return condition(session)

    try:
        await wait_until_async(is_reached, seconds, f"session {key}")
    except TimeoutError as error:
        raise AssertionError(f"{error}: {session}") from None
    return session


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are killed at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait(10)
