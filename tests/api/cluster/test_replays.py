"""`/resource-groups/{key}/replays`: the history of a group, simulated under other policies."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    Forbidden,
    InUse,
    InvalidRequest,
    NotFound,
    RateLimited,
)
from bai_services.manager.cluster import replays
from bai_services.manager.scheduling import replay_process
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

SIX = {"cpu": "6", "mem": "1g"}
TWO = {"cpu": "2", "mem": "1g"}
PATH = "/resource-groups/default/replays"
# Timeout for the worker process, which imports numba and may JIT-compile the placement code.
WORKER_SECONDS = 120
# Heartbeat interval. An agent is LOST after 40 s without a heartbeat.
BEAT_SECONDS = 10
SPREAD = {"scheduler": "lifo", "scheduler_opts": {"placement": "spread"}}


def an_hour(api: Api) -> dict[str, Any]:
    now = api.world.clock()
    return {"since": (now - timedelta(hours=1)).isoformat()}


async def result_of(client: Client, replay: dict[str, Any], status: str = "done") -> dict[str, Any]:
    """Wait for the end of a replay and return its result.

    Assert that the progress did not decrease, and that the replay ended with ``status``.
    """
    seen = [0.0]

    async def ended() -> dict[str, Any] | None:
        answer = dict(await client.get(f"{PATH}/{replay['id']}"))
        seen.append(answer["replay"]["progress"])
        return None if answer["replay"]["status"] == "running" else answer

    answer = await wait_until_async(ended, WORKER_SECONDS, "the end of the replay")
    assert seen == sorted(seen)
    assert answer["replay"]["status"] == status, answer["replay"]
    return answer


async def advance(api: Api, agent: FakeAgent, seconds: int) -> None:
    """Advance the clock in steps of at most ``BEAT_SECONDS``, with a heartbeat after each step."""
    for begin in range(0, seconds, BEAT_SECONDS):
        api.world.clock.advance(seconds=min(BEAT_SECONDS, seconds - begin))
        await agent.beat(None)


async def history(api: Api, agent: FakeAgent, user: Client) -> None:
    """Create three sessions with 6, 6 and 2 cores on an agent with 8 cores.

    The second session belongs to another domain, and waits for the end of the first session. The
    second and the third session are still running when this function returns.
    """
    foreign = await api.client("acme-user")
    first = await user.post("/sessions", {"name": "first", "resources": SIX})
    await wait_for_status(user, "first", "SCHEDULED")
    await advance(api, agent, 10)
    await foreign.post("/sessions", {"name": "secret-plan", "resources": SIX})
    await advance(api, agent, 10)
    await user.post("/sessions", {"name": "third", "resources": TWO})
    await wait_for_status(user, "third", "SCHEDULED")
    await advance(api, agent, 100)
    await user.delete(f"/sessions/{first['id']}")
    await wait_for_status(foreign, "secret-plan", "SCHEDULED")
    await advance(api, agent, 30)


async def test_replay_compares_the_recorded_history_with_other_policies(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await history(api, agent, user)
    admin, domain_admin = await api.client("admin"), await api.client("domain-admin")
    body = {**an_hour(api), "policies": [SPREAD, {"scheduler_opts": {"backfill": "off"}}]}
    started = await domain_admin.post(PATH, body)
    assert (started["username"], started["resource_group"]) == ("domain-admin", "default")
    assert started["policies"] == ["lifo / spread / reserving", "fifo / priced / off"]
    with pytest.raises(InUse, match="you already run a replay of resource group default"):
        await domain_admin.post(PATH, an_hour(api))
    own = (await result_of(domain_admin, started))["comparison"]
    full = (await admin.get(f"{PATH}/{started['id']}"))["comparison"]

    assert (full["sessions"], full["running_before"], full["agents"]) == (3, 0, 1)
    recorded, current, _, off = full["reports"]
    assert [r["name"] for r in full["reports"]] == ["history", "current", *started["policies"]]
    # The second session waited exactly 110 s, because the clock stands still during a pass.
    assert recorded["wait_seconds"] == current["wait_seconds"]
    assert recorded["wait_seconds"]["max"] == 110
    assert current["than_history"] == {"earlier": 0, "later": 0, "same": 3}
    # Without backfill, the third session waits for the start of the second.
    assert off["than_current"] == {"earlier": 0, "later": 1, "same": 2}
    assert off["by_user"] != current["by_user"]
    assert {g["kind"]: g["count"] for g in full["gaps"]}["still-running"] == 2
    assert {u["resource"] for u in recorded["utilization"]} == {"cpu", "cuda"}
    assert len(recorded["utilization"][0]["percents"]) == len(full["times"])

    # The domain admin sees the metrics of the other domain's sessions, but neither the domain's
    # name nor its users' names.
    assert {(g["domain"], g["name"]) for g in recorded["by_user"]} == {
        ("default", "user"), ("acme", "acme-user"),
    }  # fmt: skip
    shown = own["reports"][0]["by_user"]
    assert [(g["domain"], g["name"], g["sessions"]) for g in shown] == [
        ("default", "user", 2), ("", "", 1),
    ]  # fmt: skip
    assert shown[1]["wait_seconds"]["max"] == 110
    assert "acme" not in str(own)

    monitor = await api.client("monitor")
    (listed,) = (await monitor.get(PATH))["replays"]
    assert (listed["id"], listed["status"]) == (started["id"], "done")
    with pytest.raises(Forbidden):
        await monitor.post(PATH, an_hour(api))
    with pytest.raises(Forbidden):
        await user.get(f"{PATH}/{started['id']}")


async def test_replay_can_be_cancelled_by_its_starter_and_superadmins(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, domain_admin = await api.client("admin"), await api.client("domain-admin")
    first = await admin.post(PATH, an_hour(api))
    (listed,) = (await domain_admin.get(PATH))["replays"]
    assert listed["id"] == first["id"]
    with pytest.raises(Forbidden, match=r"replay\.cancel"):
        await domain_admin.delete(f"{PATH}/{first['id']}")
    second = await domain_admin.post(PATH, an_hour(api))
    assert (await domain_admin.delete(f"{PATH}/{second['id']}"))["status"] == "cancelled"
    third = await domain_admin.post(PATH, an_hour(api))
    for replay in (first, third):
        assert (await admin.delete(f"{PATH}/{replay['id']}"))["status"] == "cancelled"
    # Repeating the request changes nothing, and the next replay can start.
    assert (await admin.delete(f"{PATH}/{first['id']}"))["status"] == "cancelled"
    fourth = await admin.post(PATH, an_hour(api))
    answer = await result_of(admin, fourth)
    assert answer["comparison"]["sessions"] == 0
    monkeypatch.setattr(replays, "KEEP_FOR", timedelta(seconds=10))
    api.world.clock.advance(seconds=11)
    with pytest.raises(NotFound, match="for at most a day"):
        await admin.get(f"{PATH}/{fourth['id']}")


async def test_replays_that_ended_last_are_kept(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, domain_admin = await api.client("admin"), await api.client("domain-admin")
    long = await admin.post(PATH, an_hour(api))
    short = await domain_admin.post(PATH, an_hour(api))
    for client, replay in ((domain_admin, short), (admin, long)):
        api.world.clock.advance(seconds=1)
        await client.delete(f"{PATH}/{replay['id']}")
    monkeypatch.setattr(replays, "MAX_KEPT", 1)
    assert [one["id"] for one in (await admin.get(PATH))["replays"]] == [long["id"]]


async def test_number_of_replays_of_all_callers_is_limited(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "MAX_RUNNING", 1)
    admin, domain_admin = await api.client("admin"), await api.client("domain-admin")
    running = await admin.post(PATH, an_hour(api))
    with pytest.raises(RateLimited, match="other users run 1 replay;"):
        await domain_admin.post(PATH, an_hour(api))
    await admin.delete(f"{PATH}/{running['id']}")


async def test_replay_process_over_its_memory_limit_fails_with_an_explanation(
    api: Api, agent: FakeAgent, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start, the process has already mapped more than the limit of 1 MiB."""
    await user.post("/sessions", {"name": "only-one", "resources": TWO})
    await wait_for_status(user, "only-one", "SCHEDULED")
    api.world.clock.advance(seconds=1)
    monkeypatch.setattr(replays, "MEMORY_BYTES", 2**20)
    admin = await api.client("admin")
    answer = await result_of(admin, await admin.post(PATH, an_hour(api)), "failed")
    assert "memory" in answer["replay"]["error"]
    assert answer["comparison"] is None


async def test_replay_process_over_its_time_limit_is_killed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_process, "WALL_SECONDS", 0.05)
    admin = await api.client("admin")
    answer = await result_of(admin, await admin.post(PATH, an_hour(api)), "failed")
    assert "exceeded its time limit; choose a shorter period" in answer["replay"]["error"]


async def test_killed_process_is_not_reported_as_too_slow(api: Api) -> None:
    """The Linux kernel kills a process with SIGKILL if the machine runs out of memory."""
    admin = await api.client("admin")
    replay = await admin.post(PATH, an_hour(api))
    children = Path(f"/proc/self/task/{os.getpid()}/children")

    def worker() -> int | None:
        for pid in children.read_text().split():
            if b"replay_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        return None

    os.kill(await wait_until_async(worker, WORKER_SECONDS, "the replay process"), signal.SIGKILL)
    answer = await result_of(admin, replay, "failed")
    assert "was killed, probably because" in answer["replay"]["error"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"since": "2030-01-01T00:00:00"}, "since"),
        ({"since": "0001-01-01T00:00:00+14:00"}, "maximum of 92 days"),
        ({"since": "9999-12-31T23:59:59Z"}, "since must be before until"),
        (
            {"since": "0001-01-01T00:00:00+14:00", "until": "0001-01-01T20:00:00+14:00"},
            "since must not be before the year 1970",
        ),
        ({"until": "2001-01-01T00:00:00Z"}, "since must be before until"),
        ({"policies": [{}, {}, {}]}, "policies"),
        ({"policies": [{}, {}]}, "policies 1 and 2 are equal"),
        ({"policies": [{"scheduler": "magic"}]}, "is not a valid scheduler"),
        ({"policies": [{"scheduler_opts": {"speed": 1}}]}, "'speed'"),
        ({"policies": [{"placement": "spread"}]}, "placement"),
    ],
)
async def test_invalid_replay_is_rejected(api: Api, change: dict[str, Any], message: str) -> None:
    admin = await api.client("admin")
    with pytest.raises(InvalidRequest, match=message):
        await admin.post(PATH, {**an_hour(api), **change})


async def test_period_with_too_many_sessions_is_rejected(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "MAX_SESSIONS", 0)
    await user.post("/sessions", {"name": "only-one", "resources": TWO})
    api.world.clock.advance(seconds=1)
    admin = await api.client("admin")
    with pytest.raises(InvalidRequest, match="had 1 session in this period; at most 0"):
        await admin.post(PATH, an_hour(api))


async def test_replay_of_another_group_is_not_found(api: Api) -> None:
    admin = await api.client("admin")
    await admin.post("/resource-groups", {"name": "other", "engine": "process"})
    replay = await admin.post(PATH, an_hour(api))
    with pytest.raises(NotFound, match="there is no replay"):
        await admin.get(f"/resource-groups/other/replays/{replay['id']}")
    await admin.delete(f"{PATH}/{replay['id']}")
