"""Hardware partitions of devices, NCCL settings, activity of devices, and masked devices."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices import machine_devices
from bai_services.agent.devices.base import (
    Device,
    DeviceKind,
    DeviceProcess,
    Finding,
    GrantedDevice,
)
from bai_services.agent.devices.device_grants import DeviceGrants
from bai_services.agent.devices.host_access import HostAccess
from bai_services.agent.devices.machine_devices import MachineDevices
from bai_services.agent.devices.memory_watchdog import Action, Watchdog
from bai_services.agent.devices.nvidia.nccl import nccl_defaults
from bai_services.agent.devices.table import built_in
from bai_services.agent.devices.vendors.rngd import Rngds
from bai_services.agent.engine import Engine
from bai_services.agent.folders.kernel_folders import Folders
from bai_services.agent.kernels import Task
from bai_services.agent.processes import ProcessEngine
from bai_services.core.cluster.device_sharing import Level
from bai_services.core.sessions.launch_plan import Injection
from bai_services.engines.base import merged_environ
from tests.spawner.plans import plan as a_plan

from .test_vendors import UUID, FakeMachine, amd, furiosa, machine

__all__ = ["machine"]

GIB = 2**30


def test_partitions_of_an_mi300_have_a_separate_slot(machine: FakeMachine) -> None:
    amd(machine)
    files = {f"/sys/devices/0000:0{n}:00.0/current_compute_partition": "CPX" for n in (0, 1)}
    files |= {f"/sys/devices/0000:0{n}:00.0/unique_id": UUID for n in (0, 1)}
    machine.files(files)
    kind = machine.kind("rocm")
    parts = kind.discover()
    assert [(d.id, d.slot, d.sharing.level) for d in parts] == [
        (f"{UUID}.128", "rocm.cpx", Level.HARDWARE),
        (f"{UUID}.129", "rocm.cpx", Level.HARDWARE),
    ]
    assert (
        kind.inject([GrantedDevice(parts[0], 1000, "rocm.cpx")], "process").level is Level.HARDWARE
    )
    machine.files({path: "SPX" for path in files if path.endswith("partition")})
    whole = [d for d in kind.discover() if d.is_healthy]
    assert {d.slot for d in whole} == {""}


@pytest.mark.parametrize(
    "parts, slot, elements",
    [
        pytest.param(2, "rngd.pe-4", ["pe0-3", "pe4-7"], id="two partitions"),
        pytest.param(4, "rngd.pe-2", ["pe0-1", "pe2-3", "pe4-5", "pe6-7"], id="four partitions"),
        pytest.param(8, "rngd.pe-1", [f"pe{n}" for n in range(8)], id="eight partitions"),
    ],
)
def test_rngd_is_divided_into_equal_parts(
    machine: FakeMachine, parts: int, slot: str, elements: list[str]
) -> None:
    furiosa(machine)
    names = [f"pe{n}" for n in range(8)] + ["pe0-1", "pe2-3", "pe4-5", "pe6-7", "pe0-3", "pe4-7"]
    machine.files({f"/dev/rngd/npu0{name}": "" for name in names})
    # A file of another card, although its name starts with ``npu0``, like the files of card 0.
    machine.files({"/dev/rngd/npu01mgmt": ""})
    kind = Rngds(replace(built_in()["rngd"], parts=parts), "m1", HostAccess(machine.root))
    devices = kind.discover()
    assert [d.id for d in devices] == [f"RNGD-1.{name}" for name in elements]
    assert {(d.slot, d.memory_bytes) for d in devices} == {(slot, 48 * GIB // parts)}
    part = kind.inject([GrantedDevice(devices[0], 1000, slot)], "docker")
    assert list(part.device_nodes) == ["/dev/rngd/npu0mgmt", f"/dev/rngd/npu0{elements[0]}"]
    assert part.level is Level.HARDWARE


def test_path_pattern_of_device_1_does_not_match_device_10(tmp_path: Path) -> None:
    for name in ("npu1mgmt", "npu10mgmt", "npu1"):
        (tmp_path / name).touch()
    assert HostAccess(tmp_path).paths("/npu{i}*", 1) == ["/npu1", "/npu1mgmt"]


def gpu(number: int, numa: int | None = None, linked: int | None = None) -> GrantedDevice:
    links = {} if linked is None else {f"g{linked}": 4}
    device = Device(f"g{number}", "cuda", number, "H", GIB, numa_node=numa, facts={"links": links})
    return GrantedDevice(device, 1000, "cuda.device")


def test_nccl_defaults_use_links_and_nearest_adapters(tmp_path: Path) -> None:
    host = HostAccess(tmp_path)
    for name, numa, state in (("a", 0, "4: ACTIVE"), ("b", 1, "4: ACTIVE"), ("c", 1, "1: DOWN")):
        folder = tmp_path / f"sys/class/infiniband/mlx5_{name}"
        (folder / "ports/1/gid_attrs/types").mkdir(parents=True)
        (folder / "device").mkdir()
        (folder / "ports/1/state").write_text(state)
        (folder / "device/numa_node").write_text(str(numa))
        for index, kind in enumerate(("IB/RoCE v1", "RoCE v2")):
            (folder / f"ports/1/gid_attrs/types/{index}").write_text(kind)
    pair = [gpu(0, 1, linked=1), gpu(1, 1, linked=0)]
    assert nccl_defaults(pair, host, "process") == {
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_IB_HCA": "mlx5_b",
        "NCCL_IB_GID_INDEX": "1",
    }
    assert nccl_defaults([gpu(0), gpu(1)], host, "process")["NCCL_IB_HCA"] == "mlx5_a,mlx5_b"
    # The agent gives no InfiniBand adapter to containers.
    assert nccl_defaults([gpu(0), gpu(1)], host, "docker") == {"NCCL_IB_DISABLE": "1"}
    assert nccl_defaults([gpu(0)], host, "process") == {}
    part = replace(gpu(1), amount=500)
    assert nccl_defaults([gpu(0), part], host, "process") == {}


def add_adapter(root: Path, name: str, ports: dict[int, tuple[str, ...]]) -> None:
    """Write an adapter. ``ports`` maps port numbers to GID types; a port without GIDs is down."""
    for port, kinds in ports.items():
        folder = root / f"sys/class/infiniband/{name}/ports/{port}"
        (folder / "gid_attrs/types").mkdir(parents=True)
        (folder / "state").write_text("4: ACTIVE" if kinds else "1: DOWN")
        for index, kind in enumerate(kinds):
            (folder / f"gid_attrs/types/{index}").write_text(kind)


V1, V2 = "IB/RoCE v1", "RoCE v2"


@pytest.mark.parametrize(
    ("adapters", "index"),
    [
        pytest.param([{1: (), 2: (V1, V2)}], "1", id="only the second port is active"),
        pytest.param([{1: (V1, V2, V1, V2)}, {1: (V1, V1, V1, V2)}], "3", id="common index"),
        pytest.param([{1: (V1, V2)}, {1: (V2, V1)}], None, id="no common index"),
        pytest.param([{1: (V1,)}, {1: (V1, V2)}], "1", id="the first adapter has no RoCE v2 GID"),
        pytest.param([{1: (V1,) * 9 + (V2, V2)}], "9", id="numeric order"),
    ],
)
def test_gid_index_is_valid_for_all_active_ports_with_roce_v2(
    tmp_path: Path, adapters: list[dict[int, tuple[str, ...]]], index: str | None
) -> None:
    for number, ports in enumerate(adapters):
        add_adapter(tmp_path, f"mlx5_{number}", ports)
    variables = nccl_defaults([gpu(0), gpu(1)], HostAccess(tmp_path), "process")
    assert variables.get("NCCL_IB_GID_INDEX") == index


def test_user_environment_overrides_injection_defaults() -> None:
    injection = Injection(environ={"A": "agent"}, defaults={"NCCL_IB_DISABLE": "1", "B": "2"})
    plan = replace(a_plan(), injection=injection, environ={"NCCL_IB_DISABLE": "0", "A": "user"})
    environ = merged_environ(plan, {}, {})
    assert (environ["NCCL_IB_DISABLE"], environ["B"], environ["A"]) == ("0", "2", "agent")


class SingleCard(DeviceKind):
    """One card of 96 GiB whose driver reports no processes; ``seen`` has the reported metrics."""

    family = "gaudi2"

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def discover(self) -> list[Device]:
        return [Device("hl0", self.family, 0, "HL-225", 96 * GIB)]

    def finding(self) -> Finding:
        return Finding(self.family, "Gaudi", "stand-in", 1)

    def sample(self) -> dict[str, dict[str, Any]]:
        return {"hl0": dict(self.seen)}

    def hidden(self) -> dict[str, str]:
        return {}

    def inject(self, granted: Any, engine: str) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    "seen, is_active",
    [
        pytest.param({"memory_used_bytes": 5 * GIB}, True, id="memory in use"),
        pytest.param(
            {"memory_used_bytes": GIB // 2}, False, id="less memory than the activity threshold"
        ),
        pytest.param({}, False, id="memory and utilization are unknown"),
        pytest.param(
            {"memory_used_bytes": 5 * GIB, "utilization_percent": 0}, False, id="utilization is 0"
        ),
    ],
)
async def test_used_memory_counts_as_activity_without_utilization(
    tmp_path: Path, seen: dict[str, Any], is_active: bool
) -> None:
    cards, folders = SingleCard(), Folders(tmp_path)
    cards.seen = seen
    devices = MachineDevices([cards])
    await devices.refresh()
    engine: Engine = ProcessEngine("m1", folders, 1.0)
    grants = DeviceGrants(folders)
    watchdog = Watchdog(devices, engine, grants, Action.STOP)
    key = "0" * 32
    task = Task("w", "prepare", key, key)
    folders.create(task, None, None)
    grants.add(task, [GrantedDevice(cards.discover()[0], 1000, "gaudi2.device")])
    await watchdog.check()
    (use,) = watchdog.usage(key)["devices"]
    assert use["memory_bytes"] == seen.get("memory_used_bytes")
    assert (use["active_at"] is not None) == is_active
    active_at = use["active_at"]
    cards.seen = {"memory_used_bytes": 0}
    await devices.refresh()
    await watchdog.check()
    # The device is idle now, so the time of the last activity does not change.
    assert watchdog.usage(key)["devices"][0]["active_at"] == active_at


class HungCard(SingleCard):
    """A card whose driver hangs or fails while it lists processes."""

    reports_processes = True

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    def processes(self) -> list[DeviceProcess]:
        self.calls += 1
        assert self.may_answer.wait(60)
        if self.error is not None:
            raise self.error
        return [DeviceProcess("hl0", os.getpid(), 7 * GIB)]


class OtherCard(SingleCard):
    family = "other"

    def discover(self) -> list[Device]:
        return [replace(device, id="other0", family="other") for device in super().discover()]

    def sample(self) -> dict[str, dict[str, Any]]:
        return {"other0": dict(self.seen)}


class OwnProcesses(ProcessEngine):
    """An engine with one session, to which all processes belong."""

    session_id = "2" * 32

    async def owners(self, pids: Collection[int]) -> dict[int, str]:
        return dict.fromkeys(pids, self.session_id)


@pytest.mark.parametrize(
    "error", [None, OSError("driver failure")], ids=["driver hangs", "driver fails"]
)
async def test_driver_that_does_not_answer_blocks_neither_watchdog_nor_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    hung, other = HungCard(), OtherCard()
    other.seen = {"memory_used_bytes": 3 * GIB}
    devices = MachineDevices([hung, other])
    await devices.refresh()
    folders = Folders(tmp_path)
    engine, grants = OwnProcesses("m1", folders, 1.0), DeviceGrants(folders)
    watchdog = Watchdog(devices, engine, grants, Action.WARN)
    key = engine.session_id
    task = Task("w", "prepare", key, key)
    folders.create(task, None, None)
    cards = [*hung.discover(), *other.discover()]
    grants.add(task, [GrantedDevice(card, 1000, card.slot) for card in cards])
    await watchdog.check()
    before = watchdog.usage(key)["devices"]
    assert [use["processes"] for use in before] == [1, 0]

    if error is None:
        monkeypatch.setattr(machine_devices, "READ_TIMEOUT_SECONDS", 0.05)
        hung.may_answer.clear()
    hung.error = error
    calls = hung.calls
    other.seen["memory_used_bytes"] = 4 * GIB
    await devices.refresh()
    async with asyncio.timeout(30):
        await watchdog.check()
        await watchdog.check()
        await watchdog.detach_session(key)
    # For the hung device, the last known usage is reported. The other device is still monitored.
    first, second = watchdog.usage(key)["devices"]
    assert first == before[0]
    assert second["memory_bytes"] == 4 * GIB
    # A call that hangs is not repeated, because each call would occupy a thread.
    assert hung.calls == calls + (1 if error is None else 3)

    hung.error = None
    hung.may_answer.set()
    monkeypatch.undo()
    await watchdog.check()
    assert watchdog.usage(key)["devices"][0]["processes"] == 1
    await devices.close()


async def test_masked_device_in_use_is_still_monitored(tmp_path: Path) -> None:
    cards = SingleCard()
    cards.seen = {"memory_used_bytes": 7 * GIB}
    devices = MachineDevices([cards], masked=["hl0"])
    (report,) = await devices.refresh()
    assert (report["is_healthy"], report["facts"]["masked"]) == (False, True)
    folders = Folders(tmp_path)
    grants = DeviceGrants(folders)
    watchdog = Watchdog(devices, ProcessEngine("m1", folders, 1.0), grants, Action.STOP)
    key = "1" * 32
    task = Task("w", "prepare", key, key)
    folders.create(task, None, None)
    grants.add(task, [GrantedDevice(cards.discover()[0], 1000, "gaudi2.device")])
    await watchdog.check()
    assert watchdog.usage(key)["devices"][0]["memory_bytes"] == 7 * GIB
