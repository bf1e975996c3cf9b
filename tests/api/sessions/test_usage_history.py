"""Usage over time: samples from heartbeats, `/sessions/{key}/usage-history`, `/usage-trends`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.sessions.usage_history import COARSE
from bai_services.manager.sessions.usage.histories import MAX_TREND_SESSIONS
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, Client

from .test_sessions import create_running_session, wait_for_status

GIB = 2**30
TWO_CORES = {"resources": {"cpu": "2", "mem": "1g"}}


class Kernel:
    """Reports the usage of a session's kernel in heartbeats, and advances the clock."""

    def __init__(self, api: Api, agent: FakeAgent, session: dict[str, Any]) -> None:
        self._clock = api.world.clock
        self._sampling = api.world.manager.sessions.usage_sampling
        self._agent = agent
        self._id = {"kernel_id": session["kernel_id"], "session_id": session["id"]}

    def align(self, seconds: int) -> None:
        """Advance the clock to the next multiple of ``seconds``."""
        self._clock.advance(seconds=seconds - int(self._clock.now.timestamp()) % seconds)

    async def report(self, **usage: Any) -> None:
        await self._agent.beat([self._agent.running(self._id, usage=usage)])

    async def wait(self, seconds: float) -> None:
        """Advance the clock; let the manager store the samples of intervals that have ended."""
        self._clock.advance(seconds=seconds)
        await self._sampling.step()


async def test_history_contains_the_reported_usage(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    kernel = Kernel(api, agent, await create_running_session(api, agent, "lab1", **TWO_CORES))
    kernel.align(15)
    device = {"id": "a1-g0", "utilization_percent": 40.0, "memory_bytes": GIB}
    await kernel.report(cpu_cores=0.5, mem_bytes=GIB // 2, net_rx_bytes=0, devices=[device])
    found = await user.get("/sessions/lab1/usage-history", period="60")
    assert found["metrics"]["cpu_cores"] == [None, None, None, None, 0.5]
    await kernel.wait(5)
    await kernel.report(cpu_cores=1.5, mem_bytes=GIB // 2, net_rx_bytes=500, devices=[device])
    await kernel.wait(40)
    found = await user.get("/sessions/lab1/usage-history", period="60")
    assert (found["interval_seconds"], found["cpu_limit_cores"]) == (15, 2)
    assert (found["kernel"], found["mem_limit_bytes"]) == ("main1", GIB)
    start, end = (datetime.fromisoformat(found[name]) for name in ("start", "end"))
    assert end - start == timedelta(seconds=75)
    assert found["metrics"] == {
        "cpu_cores": [None, 1.0, None, None, None],
        "mem_bytes": [None, GIB / 2, None, None, None],
        "net_rx_bytes_per_second": [None, 100, None, None, None],
        "net_tx_bytes_per_second": [],
        "io_read_bytes_per_second": [],
        "io_write_bytes_per_second": [],
    }
    [trend] = (await user.get("/usage-trends"))["items"]
    assert [value for value in trend["cpu_percent"] if value is not None] == [50]
    assert [value for value in trend["mem_percent"] if value is not None] == [50]
    assert [value for value in trend["device_percent"] if value is not None] == [40]
    assert len(trend["cpu_percent"]) == 15


async def test_history_of_an_ended_session_ends_with_the_session(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "lab1", **TWO_CORES)
    kernel = Kernel(api, agent, session)
    kernel.align(15)
    await kernel.report(cpu_cores=1)
    await kernel.wait(20)
    await user.delete("/sessions/lab1")
    end = {"exit_code": 0, "reason_code": "stopped", "reason": "stopped", "log": ""}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await wait_for_status(user, session["id"], "TERMINATED")
    await kernel.wait(300)
    found = await user.get(f"/sessions/{session['id']}/usage-history", period="60")
    assert 1 in found["metrics"]["cpu_cores"]
    terminated, end = (datetime.fromisoformat(t) for t in (ended["terminated_at"], found["end"]))
    assert timedelta() <= end - terminated <= timedelta(seconds=15)
    assert (await user.get("/usage-trends"))["items"] == []


async def test_samples_of_five_minutes_are_kept_longer_than_samples_of_15_seconds(
    api: Api, agent: FakeAgent
) -> None:
    manager, owner = api.world.manager, await api.world.caller("user")
    session = await create_running_session(api, agent, "lab1", **TWO_CORES)
    kernel = Kernel(api, agent, session)
    assert await manager.scheduling.lease.hold() is not None
    kernel.align(300)
    for cores in (0.5, 1.5):
        await kernel.report(cpu_cores=cores)
        await kernel.wait(150)
    await kernel.wait(60)
    history = manager.sessions.usage_histories.get
    day = await history(owner, "lab1", "main1", 86400)
    assert (day.interval_seconds, [v for v in day.metrics["cpu_cores"] if v]) == (300, [1.0])
    await kernel.wait(2 * 3600)
    hour = await history(owner, "lab1", "main1", 3600)
    assert (hour.interval_seconds, hour.metrics["cpu_cores"]) == (15, [])
    day = await history(owner, "lab1", "main1", 86400)
    assert [v for v in day.metrics["cpu_cores"] if v] == [1.0]
    # For a month, another manager holds the lease. Otherwise, this manager would downsample
    # thousands of empty intervals.
    await manager.scheduling.lease.stop()
    await kernel.wait(COARSE.kept_for.total_seconds())
    assert await manager.scheduling.lease.hold() is not None
    await kernel.wait(1)
    month = await history(owner, "lab1", "main1", 30 * 86400)
    assert (month.interval_seconds, month.metrics["cpu_cores"]) == (8700, [])


async def test_history_of_a_day_contains_the_last_minutes(api: Api, agent: FakeAgent) -> None:
    manager, owner = api.world.manager, await api.world.caller("user")
    session = await create_running_session(api, agent, "lab1", **TWO_CORES)
    kernel = Kernel(api, agent, session)
    assert await manager.scheduling.lease.hold() is not None
    history = manager.sessions.usage_histories.get
    kernel.align(300)
    await kernel.report(cpu_cores=0.5)
    day = await history(owner, "lab1", "main1", 86400)
    assert (day.interval_seconds, day.metrics["cpu_cores"][-1]) == (300, 0.5)
    await kernel.wait(15)
    await kernel.report(cpu_cores=1.5)
    day = await history(owner, "lab1", "main1", 86400)
    assert day.metrics["cpu_cores"][-1] == 1.0
    # The interval of five minutes has ended. Its samples are not downsampled yet.
    await kernel.wait(290)
    await kernel.report(cpu_cores=2)
    day = await history(owner, "lab1", "main1", 86400)
    assert day.metrics["cpu_cores"][-2:] == [1.0, 2.0]
    await kernel.wait(60)
    assert (await history(owner, "lab1", "main1", 86400)).metrics["cpu_cores"][-2:] == [1.0, 2.0]


async def test_stop_of_the_manager_stores_the_current_interval(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    kernel = Kernel(api, agent, await create_running_session(api, agent, "lab1", **TWO_CORES))
    await kernel.report(cpu_cores=1)
    await api.world.manager.sessions.usage_sampling.stop()
    found = await user.get("/sessions/lab1/usage-history", period="60")
    assert found["metrics"]["cpu_cores"][-1] == 1


async def test_trends_contain_only_visible_sessions(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "lab1", **TWO_CORES)
    stranger = await api.client("user2")
    assert (await stranger.get("/usage-trends", session=session["id"]))["items"] == []
    assert len((await user.get("/usage-trends", session=session["id"]))["items"]) == 1


async def test_invalid_usage_request_is_rejected_with_the_reason(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "lab1", "enqueue_only": True})
    path = "/sessions/lab1/usage-history"
    for period in ("59", "2592001", "1e300", "-1", "nan", "x"):
        with pytest.raises(InvalidRequest, match="period="):
            await user.get(path, period=period)
    with pytest.raises(NotFound, match="it has main1"):
        await user.get(path, kernel="sub9")
    caller = await api.world.caller("user")
    with pytest.raises(InvalidRequest, match="limit is 100"):
        await api.world.manager.sessions.usage_histories.trends(
            caller, ["x"] * (MAX_TREND_SESSIONS + 1)
        )
