"""Gaps in samples, restarts and clock changes never stop a session that is in use."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.sessions.idle_checks.checkers import CheckerSettings, CheckerType
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.usage_history import FINE, Sample
from bai_services.db.sessions.time_limits import TimeLimitStore
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.manager.sessions.usage.sampling import UsageSampling
from tests.db.world import make_world

from .test_idle_judging import IdleSimulation

# The usage is just above the thresholds, so that a measurement that is too low counts as idle.
BUSY_BYTES_PER_SECOND = 1100.0
CHECKERS = {
    "net": CheckerSettings(60, thresholds={"net": 1000}, warnings_seconds=(), idle_percent=50),
    "cpu": CheckerSettings(60, thresholds={"cpu_util": 50}, warnings_seconds=(), idle_percent=50),
}
HEARTBEAT_SECONDS = 5
# Seconds by which the clock is changed; changes of less than 10 s are not noticed.
JUMPS = (-7200, -600, -40, -9, -3, 3, 9, 40, 600, 7200)


class DisturbedSimulation(IdleSimulation):
    """A manager and an agent that can be killed, and a clock that can be changed."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.limits = TimeLimitStore(world.database)
        self.sampling = self.new_sampling()
        self.bytes: dict[str, float] = {}
        self.agent_is_new = True
        # Number of heartbeats for which the agent or the manager is still down; 0: it runs.
        self.agent_is_down_for = 0
        self.manager_is_down_for = 0

    def new_sampling(self) -> UsageSampling:
        return UsageSampling(
            UsageSampleStore(self.world.database),
            self.lease,
            lambda: self.now,
            monotonic=lambda: self.monotonic,
        )

    def kill_manager(self, heartbeats: int) -> None:
        self.manager_is_down_for = heartbeats
        self.sampling, self.judging = self.new_sampling(), self.new_judging()

    def kill_agent(self, heartbeats: int) -> None:
        self.agent_is_down_for, self.agent_is_new = heartbeats, True

    async def beat(self, used: dict[str, bool]) -> None:
        """Let ``HEARTBEAT_SECONDS`` pass; ``used`` maps each session to whether it is used."""
        self.advance(HEARTBEAT_SECONDS)
        for session_id, is_used in used.items():
            self.bytes.setdefault(session_id, 0)
            if is_used:
                self.bytes[session_id] += BUSY_BYTES_PER_SECOND * HEARTBEAT_SECONDS
        self.agent_is_down_for -= 1
        self.manager_is_down_for -= 1
        if self.manager_is_down_for >= 0:
            return
        if self.agent_is_down_for < 0:
            for session_id, is_used in used.items():
                cores = {} if self.agent_is_new else {"cpu_cores": 0.6 if is_used else 0.0}
                net = {"net_rx_bytes": self.bytes[session_id], "net_tx_bytes": 0}
                self.sampling.add(self.kernels[session_id], {**cores, **net})
                if is_used:
                    await self.limits.record_activity(session_id, self.now, self.now)
            self.agent_is_new = False
        if self.monotonic % 15 == 0:
            await self.sampling.step()
            await self.judging.step()


@pytest.fixture
async def simulation(database_url: str) -> AsyncIterator[DisturbedSimulation]:
    world = await make_world(database_url)
    yield DisturbedSimulation(world)
    await world.close()


@pytest.mark.parametrize("seed", range(3))
async def test_used_session_is_never_stopped_and_an_idle_one_is(
    simulation: DisturbedSimulation, seed: int
) -> None:
    chance = random.Random(seed)
    used, idle = await simulation.add_session("used"), await simulation.add_session("idle")
    for scope, name in (("domain", "d"), ("project", "p1")):
        await simulation.add_checker(
            CHECKERS["net" if scope == "domain" else "cpu"], scope=(scope, name)
        )
    await simulation.add_checker(
        CheckerSettings(60, warnings_seconds=()), CheckerType.NETWORK, ("user", "u1")
    )
    simulation.now += timedelta(days=1)  # so that the clock is never set back before the start
    for _ in range(300):
        what = chance.random()
        if what < 0.03:
            simulation.kill_manager(chance.choice([0, 1, 5, 30]))
        elif what < 0.06:
            simulation.kill_agent(chance.choice([0, 1, 5, 30]))
        elif what < 0.09:
            simulation.now += timedelta(seconds=chance.choice(JUMPS))
        await simulation.beat({used: True})
        assert await simulation.status(used) is Status.RUNNING
    assert await simulation.status(idle) is Status.RUNNING  # nothing was measured
    # Without disturbances, an idle session is stopped.
    simulation.agent_is_down_for = simulation.manager_is_down_for = 0
    for _ in range(40):
        await simulation.beat({used: True, idle: False})
    assert await simulation.status(used) is Status.RUNNING
    assert await simulation.status(idle) is Status.TERMINATING


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_samples_of_a_time_that_is_repeated_do_not_count(
    simulation: DisturbedSimulation, is_restarted: bool
) -> None:
    """The clock is set back, so that old samples of an idle session lie in the future.

    When the clock reaches their times again, they must count as a gap.
    """
    lab = await simulation.add_session("lab")
    await simulation.add_checker(CHECKERS["cpu"])
    old = [
        Sample(
            simulation.kernels[lab], simulation.now + timedelta(seconds=15 * n), {"cpu_cores": 0.0}
        )
        for n in range(40, 80)
    ]
    simulation.now += timedelta(seconds=1300)
    await simulation.beat({lab: True})
    await simulation.samples.add(old, FINE)
    simulation.now -= timedelta(seconds=1300)
    if is_restarted:
        simulation.kill_manager(0)
    for _ in range(120):
        await simulation.beat({lab: True})
    simulation.kill_agent(300)
    for _ in range(120):
        await simulation.beat({lab: True})
    assert await simulation.status(lab) is Status.RUNNING
