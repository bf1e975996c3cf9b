"""Device usage of sessions, and the watchdog's actions if a session exceeds its share."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices.base import DeviceProcess
from bai_services.agent.devices.memory_watchdog import DeviceUsage, device_usages
from bai_services.client import Client
from bai_services.core.scheduling.placement import warm_up
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

from .conftest import Agents, wait_for_session
from .test_cuda import driver
from .test_process_agent import create_prepared, plan_of, start_as_spawner

__all__ = ["driver"]

GIB = 2**30
SLEEPER = ["sleep", "1000"]


@pytest.mark.parametrize(
    ("limits", "held", "uses"),
    [
        pytest.param(
            {"g": 100},
            {"g": [("g", 1, 60), ("g", 2, 42)]},
            [DeviceUsage("g", 102, 100, 2)],
            id="several processes",
        ),
        pytest.param({"g": 100}, {}, [DeviceUsage("g", 0, 100, 0)], id="no process"),
        pytest.param(
            {"g": 100},
            {"g": [("g", 1, 60), ("g", 2, None)]},
            [DeviceUsage("g", None, 100, 2)],
            id="one unknown value makes the sum unknown",
        ),
        pytest.param(
            {},
            {"g": [("g", 1, 1)]},
            [DeviceUsage("g", 1, 0, 1)],
            id="a device that is not granted has the limit 0",
        ),
    ],
)
def test_memory_usage_sums_all_processes(
    limits: Mapping[str, int], held: Mapping[str, list[Any]], uses: list[DeviceUsage]
) -> None:
    processes = {key: [DeviceProcess(*one) for one in value] for key, value in held.items()}
    assert device_usages(limits, processes) == uses


@pytest.mark.parametrize(
    ("busy", "percent"),
    [
        pytest.param([30.0, 12.5], 42.5, id="several processes"),
        pytest.param([0.0, 0.0], 0.0, id="idle"),
        pytest.param([30.0, None], None, id="one unknown value makes the sum unknown"),
        pytest.param([], None, id="no process: unknown"),
        pytest.param([80.0, 80.0], 100.0, id="at most 100 %"),
    ],
)
def test_utilization_sums_all_processes(busy: list[float | None], percent: float | None) -> None:
    held = {"g": [DeviceProcess("g", pid, 1, part) for pid, part in enumerate(busy)]}
    assert device_usages({"g": 100}, held)[0].utilization_percent == percent


@pytest.mark.parametrize(
    ("held", "is_over"), [(100, False), (102, False), (103, True), (None, False)]
)
def test_usage_up_to_102_percent_is_tolerated(held: int | None, is_over: bool) -> None:
    assert DeviceUsage("g", held, 100, 1).is_over_limit is is_over


@pytest.fixture
async def hold_memory(
    api: Api, agents: Agents, driver: Path, tmp_path: Path
) -> AsyncIterator[Callable[[str, Mapping[int, int]], Any]]:
    """Return a function that sets the memory of processes on the first GPU.

    If its ``action`` is not empty, the function also starts an agent, whose watchdog has this
    action.
    """
    file = tmp_path / "processes"

    async def set_memory(action: str, processes: Mapping[int, int]) -> None:
        text = "".join(f"0 {pid} {count}\n" for pid, count in processes.items())
        written = file.with_suffix(".new")
        written.write_text(text)
        written.replace(file)
        if action:
            await agents.start(
                LD_LIBRARY_PATH=str(driver),
                NVML_PROCESSES=str(file),
                BAI_AGENT_DEVICE_EXCESS=action,
            )

    yield set_memory


async def devices_of(user: Client, session_id: str) -> dict[str, Any]:
    return dict((await user.get(f"/sessions/{session_id}"))["usage"])


async def wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait, 20)


async def test_largest_process_of_session_over_its_share_is_terminated(
    api: Api, user: Client, hold_memory: Any, children: list[subprocess.Popen[bytes]]
) -> None:
    await hold_memory("terminate", {})
    session = await create_prepared(user, **{"cuda.shares": "0.25"})
    plan = await plan_of(api, session)
    (given,) = json.loads(plan["injection"]["environ"]["BAI_DEVICES"])
    assert given["memory_bytes"] == 20 * GIB
    small, large = (start_as_spawner(plan, SLEEPER, children) for _ in range(2))
    neighbour = start_as_spawner({**plan, "agent_id": "another"}, SLEEPER, children)

    await hold_memory("", {small.pid: 9 * GIB, large.pid: 10 * GIB, neighbour.pid: 60 * GIB})
    await wait_for_memory(user, session, 19 * GIB)
    assert (small.poll(), large.poll()) == (None, None)

    await hold_memory("", {small.pid: 10 * GIB, large.pid: 11 * GIB, neighbour.pid: 60 * GIB})
    assert await wait_for_exit(large) < 0
    await hold_memory("", {small.pid: 10 * GIB, neighbour.pid: 60 * GIB})
    await wait_for_memory(user, session, 10 * GIB)
    assert (small.poll(), neighbour.poll()) == (None, None)
    usage = await devices_of(user, session["id"])
    assert f"({large.pid}) was terminated" in usage["device_notice"]


async def test_session_over_its_share_is_stopped(
    api: Api, user: Client, hold_memory: Any, children: list[subprocess.Popen[bytes]]
) -> None:
    await hold_memory("stop", {})
    session = await create_prepared(user, **{"cuda.shares": "0.25"})
    process = start_as_spawner(await plan_of(api, session), SLEEPER, children)
    await hold_memory("", {process.pid: 21 * GIB})
    assert await wait_for_exit(process) < 0


async def test_warn_action_keeps_process_running(
    api: Api, user: Client, hold_memory: Any, children: list[subprocess.Popen[bytes]]
) -> None:
    await hold_memory("warn", {})
    session = await create_prepared(user, **{"cuda.shares": "0.25"})
    process = start_as_spawner(await plan_of(api, session), SLEEPER, children)
    await hold_memory("", {process.pid: 21 * GIB})

    async def is_notified() -> bool:
        return "device_notice" in await devices_of(user, session["id"])

    await wait_until_async(is_notified, 20, "the notice to the owner of the session")
    assert process.poll() is None


async def test_memory_limits_survive_agent_restart(
    api: Api,
    user: Client,
    agents: Agents,
    hold_memory: Any,
    children: list[subprocess.Popen[bytes]],
) -> None:
    await hold_memory("terminate", {})
    session = await create_prepared(user, **{"cuda.shares": "0.25"})
    process = start_as_spawner(await plan_of(api, session), SLEEPER, children)
    await wait_for_session(user, session["id"], lambda s: bool(s["usage"]))
    await agents.started[0].kill()
    await hold_memory("terminate", {process.pid: 21 * GIB})
    assert await wait_for_exit(process) < 0


async def test_utilization_is_reported_per_session(
    api: Api,
    user: Client,
    agents: Agents,
    driver: Path,
    tmp_path: Path,
    children: list[subprocess.Popen[bytes]],
) -> None:
    files = {name: tmp_path / name for name in ("processes", "busy")}
    environ = {"NVML_PROCESSES": str(files["processes"]), "NVML_BUSY": str(files["busy"])}
    environ |= {"NVML_COUNT": "1", "BAI_AGENT_DEVICE_EXCESS": "warn"}
    await agents.start(LD_LIBRARY_PATH=str(driver), **environ)
    # The first scheduling pass may JIT-compile its code, which can take a minute.
    await asyncio.to_thread(warm_up)
    sessions = [
        await create_prepared(user, name, **{"cuda.shares": "0.25"}) for name in ("first", "second")
    ]
    pids = [
        [start_as_spawner(await plan_of(api, s), SLEEPER, children).pid for _ in range(2)]
        for s in sessions
    ]
    write_lines(files["processes"], [f"0 {pid} {GIB}" for two in pids for pid in two])
    (first, second), _ = pids
    # The driver has samples only of the first session's processes, so the second session was idle.
    write_lines(files["busy"], [f"0 {first} 20", f"0 {first} 40", f"0 {second} 5"])
    await wait_for_utilization(user, sessions, [35, 0])
    # Pid 1 belongs to no session. It can be the MPS server, which works for any session, so the
    # utilization of a session without samples is unknown.
    write_lines(files["busy"], [f"0 {first} 20", f"0 {second} 1", "0 1 50"])
    await wait_for_utilization(user, sessions, [21, None])
    # The driver reports no samples: all processes were idle.
    write_lines(files["busy"], [])
    await wait_for_utilization(user, sessions, [0, 0])
    # The driver does not support samples.
    files["busy"].unlink()
    await wait_for_utilization(user, sessions, [None, None])
    used = [(await devices_of(user, session["id"]))["devices"] for session in sessions]
    assert [[device["memory_bytes"] for device in devices] for devices in used] == [[2 * GIB]] * 2


def write_lines(file: Path, lines: list[str]) -> None:
    new = file.with_suffix(".new")
    new.write_text("".join(f"{line}\n" for line in lines))
    new.replace(file)


async def wait_for_utilization(
    user: Client, sessions: list[Mapping[str, Any]], percents: list[float | None]
) -> None:
    async def are_seen() -> bool:
        current = [await user.get(f"/sessions/{session['id']}") for session in sessions]
        return [s["devices"][0]["utilization_percent"] for s in current] == percents

    await wait_until_async(are_seen, 60, f"utilizations of {percents} percent")


async def wait_for_memory(user: Client, session: Mapping[str, Any], held_bytes: int) -> None:
    async def is_seen() -> bool:
        devices = (await devices_of(user, session["id"])).get("devices", [])
        return [d["memory_bytes"] for d in devices] == [held_bytes]

    await wait_until_async(is_seen, 60, f"{held_bytes} bytes to be reported")
