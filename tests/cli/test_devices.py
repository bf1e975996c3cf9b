"""Devices, capacity, schedule and usage over time in `bai agent`, `bai session`, `bai admin`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bai_services.cli.cluster.agents import with_formatted_capacity
from bai_services.cli.sessions.usage import sparkline
from bai_services.core.cluster.device_sharing import Level, Sharing
from tests.api.sessions.test_sessions import create_running_session
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

from .conftest import Bai
from .terminal import environment, run_on_terminal

GIB = 2**30
QUARTERS = Sharing(Level.PROCESS, 250, 250)
DISCOVERY = {
    "family": "rocm",
    "title": "AMD Instinct",
    "tried": "stand-in",
    "found": 0,
    "reason": "there is no /sys/class/drm/renderD{i}",
}


def gpu(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "id": f"GPU-{number}",
        "family": "cuda",
        "index": number,
        "model": "H200",
        "memory_bytes": 141 * GIB,
        "facts": {**QUARTERS.to_facts(), **facts},
    }


async def test_agent_devices_lists_accelerators_and_discovery(bai: Bai, agent: FakeAgent) -> None:
    usage = {
        "utilization_percent": 7,
        "memory_used_bytes": 3 * GIB,
        "temperature_celsius": 54,
        "power_watts": 212.4,
    }
    await agent.beat(
        devices=[
            gpu(0, usage=usage, unavailable_levels={"cgroup": "the driver is old"}),
            {**gpu(1, masked=True), "is_healthy": False, "memory_bytes": None},
        ],
        facts={"discovery": [DISCOVERY]},
    )
    done = await bai("agent", "devices", "a1")
    lines = done.stdout.splitlines()
    assert lines[1].split() == [
        "a1", "GPU-0", "H200", "141", "GiB", "unknown", "healthy", "0", "of", "1", "7%", "3", "GiB",
        "54°C", "212.4W", "process", "0.25,", "at", "most", "4", "sessions",
    ]  # fmt: skip
    # Without a sensor, the command prints unknown instead of a zero.
    assert lines[2].split()[:14] == [
        "a1", "GPU-1", "H200", "unknown", "unknown", "not", "usable", "0", "of", "1",
        "unknown", "unknown", "unknown", "unknown",
    ]  # fmt: skip
    assert "GPU-0: enforcement level cgroup is not available: the driver is old" in lines
    assert "GPU-1: masked by the administrator; no new sessions are placed on it" in lines
    assert "there is no /sys/class/drm/renderD{i}" in lines[-1]
    document = (await bai("agent", "devices", "--json")).document
    assert document["discovery"] == [{"agent": "a1", **DISCOVERY}]
    assert [d["memory_bytes"] for d in document["devices"]] == [141 * GIB, None]


async def test_agent_list_shows_a_summary_and_is_denied_to_users(
    bai: Bai, agent: FakeAgent
) -> None:
    assert "cpu=8" in (await bai("agent", "list")).stdout
    document = (await bai("agent", "list", "--json")).document
    assert [sorted(one) for one in document["items"]] == [
        ["architecture", "id", "resource_group", "schedulable", "slots", "status", "used"]
    ]
    assert (await bai("agent", "list", by="user")).code == 5


async def test_agent_devices_is_denied_to_users(bai: Bai, agent: FakeAgent) -> None:
    assert (await bai("agent", "devices", by="user")).code == 5
    assert (await bai("agent", "devices", "nowhere")).code == 4


async def test_minimum_enforcement_restricts_placement(bai: Bai, agent: FakeAgent) -> None:
    await agent.beat(devices=[{**gpu(0), "facts": {"enforcement": "soft"}}, gpu(1)])
    update = ("admin", "group", "update", "default", "--scheduler-opts")
    create = ("session", "create", "-r", "cuda.shares=0.25", "--json")
    assert (await bai(*update, '{"minimum_enforcement": "cgroup"}')).code == 0
    refused = (await bai(*create, "refused", by="user")).error
    assert "cuda.shares=0.25 requested, but the largest agent offers 0" in refused["message"]
    assert (await bai(*update, '{"minimum_enforcement": "process"}')).code == 0
    made = (await bai(*create, "accepted", by="user")).document

    async def is_placed() -> Any:
        session = (await bai("session", "info", made["id"], "--json", by="user")).document
        return [a["device"] for a in session["allocations"] if a["device"]]

    assert await wait_until_async(is_placed, 60, "the placement") == ["GPU-1"]
    done = await bai(*update, '{"minimum_enforcement": "iron"}')
    assert "use one of: none, soft, process, cgroup, hardware" in done.stderr


async def test_session_devices_shows_share_and_usage(bai: Bai, api: Api, agent: FakeAgent) -> None:
    await agent.beat(devices=[gpu(0)])
    created = await bai("session", "create", "lab1", "-r", "cuda.shares=0.25", "--json", by="user")
    key = created.document["id"]
    (item,) = await agent.work(5)
    described = {
        "id": "GPU-0", "family": "cuda", "model": "H200", "share": "0.25",
        "memory_bytes": 35 * GIB, "enforcement": "process", "is_simulated": False,
    }  # fmt: skip
    injection = {"environ": {}, "devices": [described], "enforcement": {"cuda": "process"}}
    await agent.report(item, injection=injection)
    use = {"id": "GPU-0", "memory_bytes": 2 * GIB, "limit_bytes": 35 * GIB, "processes": 3}
    await agent.beat([agent.running(item, usage={"devices": [use]})])

    async def is_counted() -> Any:
        devices = (await bai("session", "devices", "lab1", "--json", by="user")).document
        return devices and devices[0]["used_memory_bytes"] and devices

    (device,) = await wait_until_async(is_counted, 10, "the usage of the session")
    assert device == {
        **described,
        "kernel": "main1",
        "used_memory_bytes": 2 * GIB,
        "utilization_percent": None,
        "processes": 3,
        "active_at": None,
    }
    shown = (await bai("session", "devices", "lab1", by="user")).stdout
    assert shown.splitlines()[1].split() == [
        "main1", "GPU-0", "H200", "0.25", "process", "2", "GiB", "of", "35", "GiB", "unknown", "3",
        "-",
    ]  # fmt: skip
    info = (await bai("session", "info", key, "--json", by="user")).document
    assert info["enforcement"] == {"cuda": "process"}
    plain = await bai("session", "create", "plain", by="user")
    assert plain.code == 0
    assert "has no accelerators" in (await bai("session", "devices", "plain", by="user")).stderr


async def test_agent_devices_without_accelerators_prints_a_message(
    bai: Bai, agent: FakeAgent
) -> None:
    await agent.beat(devices=[], facts={})
    done = await bai("agent", "devices", "a1")
    assert (done.code, done.stdout, done.stderr) == (0, "", "no accelerators detected\n")


def test_capacity_is_formatted_with_units() -> None:
    slots = {"cpu": "8", "mem": "16374528k", "cuda.shares": "2"}
    used = {"cpu": "1.5", "mem": "10m"}
    agent = with_formatted_capacity({"id": "a1", "slots": slots, "used": used})
    assert agent["slots"] == "cpu=8, cuda.shares=2, mem=15.6 GiB"
    assert agent["used"] == "cpu=1.5, cuda.shares=0, mem=10 MiB"
    assert agent["free"] == "cpu=6.5, cuda.shares=2, mem=15.6 GiB"


async def test_agent_list_has_columns_free_and_used(
    bai: Bai, api: Api, agent: FakeAgent, tmp_path: Path
) -> None:
    table = (await bai("admin", "agent", "list")).stdout
    assert table.splitlines()[0].split()[:4] == ["ID", "STATUS", "FREE", "USED"]
    assert "GiB" in table
    listed = (await bai("admin", "agent", "list", "--json")).document
    assert isinstance(listed["items"][0]["slots"], dict)
    environ = environment(api, tmp_path, user="admin")
    words = ["admin", "agent", "list"]
    narrow = await asyncio.to_thread(run_on_terminal, words, environ, 80, pipes_stdout=False)
    assert "FREE" in narrow.drawn and "USED" in narrow.drawn


async def test_group_schedule_lists_running_and_pending_sessions(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    for name in ("runs", "waits"):
        await bai("session", "create", name, "-r", "cpu=6", "-r", "mem=1g", by="user")

    async def document() -> Any:
        schedule = (await bai("admin", "group", "schedule", "default", "--json")).document
        return schedule if schedule.get("running") and schedule["waiting"] else None

    await wait_until_async(document, 20, "a running and a pending session")
    shown = await bai("admin", "group", "schedule", "default")
    assert (shown.code, shown.stderr) == (0, "")
    assert "runs" in shown.stdout and "waits" in shown.stdout
    assert (await bai("admin", "group", "schedule", "default", by="user")).code == 5


async def test_session_usage_shows_values_over_time(bai: Bai, api: Api, agent: FakeAgent) -> None:
    sampling, clock = api.world.manager.sessions.usage_sampling, api.world.clock
    assert "no running sessions" in (await bai("session", "usage", by="user")).stderr
    session = await create_running_session(api, agent, "lab1", resources={"cpu": "2", "mem": "1g"})
    item = {"kernel_id": session["kernel_id"], "session_id": session["id"]}
    assert "no usage was measured" in (await bai("session", "usage", "lab1", by="user")).stderr
    for cores in (0.5, 1.5):
        use = {"cpu_cores": cores, "mem_bytes": GIB // 4, "net_rx_bytes": 0}
        await agent.beat([agent.running(item, usage=use)])
        clock.advance(seconds=15)
    await sampling.step()
    lines = (await bai("session", "usage", "lab1", "--period", "15min", by="user")).stdout
    cpu, memory, network = lines.splitlines()[1:]
    assert cpu.split()[:4] == ["CPU", "cores", "of", "2"]
    assert cpu.split()[-3:] == ["1.5", "1", "1.5"]
    assert memory.split()[-6:] == ["256", "MiB"] * 3
    assert network.split()[-2:] == ["0", "B/s"]
    [trend] = (await bai("session", "usage", "--json", by="user")).document
    assert [value for value in trend["mem_percent"] if value is not None] == [25]
    assert "lab1" in (await bai("session", "usage", by="user")).stdout
    history = (await bai("session", "usage", "lab1", "--json", by="user")).document
    assert history["interval_seconds"] == 15


@pytest.mark.parametrize("option", [("--period", "24h"), ("--kernel", "sub1")])
async def test_period_and_kernel_of_usage_need_a_session(bai: Bai, option: tuple[str, str]) -> None:
    refused = await bai("session", "usage", *option, by="user")
    assert refused.code == 2
    assert "--period and --kernel need the NAME of a session" in refused.stderr


def test_sparkline_shows_gaps_and_reduces_long_series() -> None:
    assert sparkline([0, 50, None, 100, 200], 100) == "▁▅ ██"
    assert sparkline([0.0] * 60 + [100.0] * 60, 100) == "▁" * 15 + "█" * 15
    assert sparkline([0.0, None], 0) == "▁ "
    assert sparkline([], 100) == ""
