"""The enforcement level of a GPU, and the shares that sessions get of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices.enforcement_levels import (
    allowed_shares,
    cgroup_problem,
    highest_level,
)
from bai_services.agent.devices.host_access import HostAccess
from bai_services.agent.devices.memory_watchdog import Action
from bai_services.agent.devices.sharing_settings import SharingSettings
from bai_services.client import Client
from bai_services.core.cluster.device_sharing import ANY_SHARE, Level
from bai_services.core.errors import InsufficientResources, QuotaExceeded
from bai_services.core.scheduling.placement import warm_up
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until, wait_until_async

from .conftest import Agents, wait_for_session
from .test_cuda import driver
from .test_mps import Program, install
from .test_process_agent import create_prepared

__all__ = ["driver"]


@pytest.mark.parametrize(
    "cgroup, process, soft, level",
    [
        pytest.param("", "", "", Level.CGROUP, id="the driver limits containers"),
        pytest.param("old driver", "", "", Level.PROCESS, id="MPS is available"),
        pytest.param("old driver", "no MPS", "", Level.SOFT, id="the watchdog is enabled"),
        pytest.param("old driver", "no MPS", "warns only", Level.NONE, id="no enforcement"),
    ],
)
def test_highest_available_level_is_chosen(
    cgroup: str, process: str, soft: str, level: Level
) -> None:
    problems = {Level.CGROUP: cgroup, Level.PROCESS: process, Level.SOFT: soft}
    available = highest_level(problems)
    assert available.level is level
    assert list(available.problems.values()) == [text for text in problems.values() if text]


def test_allowed_shares_depend_on_the_enforcement_level() -> None:
    shares = {level: allowed_shares(level, 250) for level in Level}
    any_share = allowed_shares(Level.PROCESS, 0)
    assert (any_share.least, any_share.most, any_share.is_uniform) == (50, 1000, True)
    assert (shares[Level.PROCESS].least, shares[Level.PROCESS].most) == (250, 250)
    assert shares[Level.PROCESS].clients == 4
    # The driver limits memory on one GPU only. Therefore a share at this level is at most one GPU.
    assert shares[Level.CGROUP].most == 1000
    assert shares[Level.SOFT].most == shares[Level.NONE].most == ANY_SHARE


def test_cgroup_level_requires_driver_cgroup_v2_and_hook(tmp_path: Path) -> None:
    host = HostAccess(tmp_path)
    assert cgroup_problem("process", host, True) == "the driver can limit containers only"
    assert "R615" in cgroup_problem("docker", host, False)
    assert "cgroup v2" in cgroup_problem("docker", host, True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory dmem")
    assert "no hook" in cgroup_problem("docker", host, True)
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text("args: [nvidia-cdi-hook, create-symlinks]")
    assert "no hook" in cgroup_problem("docker", host, True)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text("args: [hook, apply-cuda-memory-limits]")
    assert cgroup_problem("docker", host, True) == ""


def test_settings_report_why_mps_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = SharingSettings(mps_share="", run_folder=str(tmp_path))
    rules = off.rules("docker", "m1", tmp_path, Action.WARN)
    assert (rules.mps, "mps_share is empty" in rules.mps_disabled_reason) == (None, True)
    assert "warn" in rules.watchdog_disabled_reason
    monkeypatch.setenv("PATH", str(tmp_path))
    rules = SharingSettings().rules("docker", "m1", tmp_path, Action.STOP)
    assert "is not installed" in rules.mps_disabled_reason
    assert rules.watchdog_disabled_reason == ""


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("bin")
    install(folder)
    return Program(folder)


@pytest.fixture
def run_folder(tmp_path_factory: pytest.TempPathFactory, program: Program) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("r")
    yield root
    program.stop_all(root)


async def device_of(api: Api, device_id: str) -> dict[str, Any]:
    page = await (await api.client("admin")).get("/devices")
    return next(dict(d) for d in page["items"] if d["id"] == device_id)


async def facts_of(api: Api, device_id: str) -> dict[str, Any]:
    return dict((await device_of(api, device_id))["facts"])


async def assert_launch_has_mps_limits(api: Api, session: dict[str, Any], pipe: str) -> None:
    plan = await api.hub.post(
        f"/sessions/{session['id']}/launch",
        {"user": session["hub_user"], "server": session["hub_server"]},
    )
    injection = plan["injection"]
    given = injection["environ"]
    assert given["CUDA_MPS_PIPE_DIRECTORY"] == pipe
    assert given["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert given["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20224M"
    mount = {"source": pipe, "target": pipe, "read_only": False, "is_own": False}
    assert mount in injection["mounts"]
    # The log is not mounted, because it contains names of other users' programs.
    assert not any("log" in mount["source"] for mount in injection["mounts"])


async def shares_in_force(api: Api, *gpus: str) -> list[str | None]:
    return [(await device_of(api, gpu))["share_in_force"] for gpu in gpus]


async def wait_for_mps(api: Api, gpu: str) -> dict[str, Any]:
    """Wait until MPS is ready and return the GPU's facts; skip if this machine cannot run MPS."""

    async def facts_once_ready() -> dict[str, Any] | None:
        facts = await facts_of(api, gpu)
        return None if facts["shares_withheld"] == "MPS is being started" else facts

    facts = await wait_until_async(
        facts_once_ready, 60, "the start of MPS, or the reason why it is unavailable"
    )
    if facts["enforcement"] != "process" or facts["shares_withheld"]:
        pytest.skip(f"this machine cannot run MPS: {facts}")
    return facts


async def create_pending_half(user: Client) -> str:
    """Create a session with a share of 0.5, which the used GPU rejects; return the session's id."""
    body = {"name": "half", "resources": {"cpu": "1", "mem": "1g", "cuda.shares": "0.5"}}
    half = await user.post("/sessions", body)
    waiting = await wait_for_session(user, half["id"], lambda s: bool(s["reasons"]))
    assert any(
        "the devices with enough capacity accept only shares of 0.25 until they are empty"
        in r["message"]
        for r in waiting["reasons"]
    )
    return str(half["id"])


async def test_mps_enforces_shares_and_survives_a_restart_of_the_agent(
    api: Api, agents: Agents, driver: Path, program: Program, run_folder: Path
) -> None:
    environ = {
        "LD_LIBRARY_PATH": str(driver),
        "PATH": f"{program.folder}:{os.environ['PATH']}",
        "FAKE_MPS": str(program.folder),
        "NVML_MODE": str(run_folder / "mode"),
        "BAI_AGENT_SET_COMPUTE_MODE": "true",
        "BAI_AGENT_RUN_FOLDER": str(run_folder),
    }
    agent = await agents.start(**environ)
    facts = await wait_for_mps(api, "GPU-0000-0")
    assert facts["shares"] == {
        "least": "0.05", "most": "1", "on_one_device": True, "is_paused": False,
        "is_uniform": True, "clients": 20,
    }  # fmt: skip
    # The first scheduling pass may JIT-compile its code, which can take a minute.
    await asyncio.to_thread(warm_up)
    user = await api.client("user")
    session = await create_prepared(user, **{"cuda.shares": "0.25"})
    assert session["enforcement"] == {"cuda": "process"}
    gpu = next(a["device"] for a in session["allocations"] if a["slot"] == "cuda.shares")
    await assert_launch_has_mps_limits(api, session, str(run_folder / "mps" / gpu / "pipe"))
    whole = await create_prepared(user, "whole", **{"cuda.device": "1"})
    assert whole["enforcement"] == {"cuda": "none"}
    device = await device_of(api, gpu)
    assert (device["used"], device["share_in_force"]) == ("0.25", "0.25")
    offer = (await user.get("/sessions/options"))["limits"]["cuda.shares"]
    assert (offer["in_force"], offer["enforcement"]) == (["0.25"], "process")
    # An unused GPU accepts a share of 0.5. This GPU accepts only shares of 0.25, because a session
    # has such a share.
    half = await create_pending_half(user)
    before = {process.pid for process in program.processes(run_folder)}
    await agent.kill()
    again = await agents.start(**environ)
    await asyncio.to_thread(
        wait_until, lambda: again.log.read_text().count("continues") == 2, 60, "MPS to continue"
    )
    assert {process.pid for process in program.processes(run_folder)} == before
    held = (await facts_of(api, gpu))["held"]
    assert (held["thousandths"], len(held["kernels"])) == (250, 1)
    # Stop the session that has the whole other GPU. Then that GPU accepts a share of 0.5.
    await user.delete(f"/sessions/{whole['id']}")
    placed = await wait_for_session(user, half, lambda s: bool(s["allocations"]))
    other = next(a["device"] for a in placed["allocations"] if a["slot"] == "cuda.shares")
    assert other != gpu
    assert await shares_in_force(api, gpu, other) == ["0.25", "0.5"]
    limited = f"{other} set_default_active_thread_percentage 50"
    commands = program.folder / "commands"
    await wait_until_async(
        lambda: limited in commands.read_text(), 60, "the limits of the other GPU"
    )
    assert (run_folder / "mps" / gpu / "percent").read_text() == "25"
    await again.stop()
    wait_until(
        lambda: not program.processes(run_folder),
        20,
        "the exit of the MPS daemons after the exit of the agent",
    )


async def test_shares_below_minimum_enforcement_are_not_offered(
    api: Api, agents: Agents, driver: Path, tmp_path: Path
) -> None:
    await agents.start(
        LD_LIBRARY_PATH=str(driver),
        BAI_AGENT_MPS_SHARE="",
        BAI_AGENT_MINIMUM_ENFORCEMENT="process",
    )
    facts = await facts_of(api, "GPU-0000-0")
    assert facts["shares"] is None
    assert (
        facts["shares_withheld"] == "the GPU's enforcement level is soft, but process is required"
    )
    user = await api.client("user")
    with pytest.raises((QuotaExceeded, InsufficientResources), match="largest agent offers 0"):
        await user.post("/sessions", {"name": "part", "resources": {"cuda.shares": "0.25"}})
    await create_prepared(user, **{"cuda.device": "1"})
