"""Vendor-specific code for AMD, Rebellions and Google (TPU) devices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bai_services.agent.devices.base import Device, DeviceGrant, DeviceProcess, GrantedDevice
from bai_services.agent.devices.host_access import HostAccess
from bai_services.agent.devices.table import built_in
from bai_services.agent.devices.vendors.amd import AmdGpus, AmdSmi
from bai_services.agent.devices.vendors.rebellions import Atoms
from bai_services.core.errors import Unavailable

from .test_vendors import UUID, FakeMachine, amd, machine

__all__ = ["machine"]

GIB = 2**30


class AmdSmiError(Exception):
    """The exception that the Python binding raises."""


def amdsmi(**functions: Any) -> Any:
    """Return a fake of the binding ``amdsmi`` with two GPUs and additional ``functions``."""
    plain = {
        "AmdSmiException": AmdSmiError,
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: ["h0", "h1"],
        "amdsmi_get_gpu_device_bdf": lambda handle: f"0000:0{handle[1]}:00.0",
    }
    return SimpleNamespace(**{**plain, **functions})


def amd_gpus(machine: FakeMachine, module: Any) -> AmdGpus:
    amd(machine)
    files = machine.root / "sys/devices/0000:00:00.0"
    for name in ("gpu_busy_percent", "mem_info_vram_used", "hwmon/hwmon4/power1_average"):
        (files / name).unlink()
    return AmdGpus(built_in()["rocm"], "m1", HostAccess(machine.root), AmdSmi(module))


def raise_amdsmi_error(*_: Any) -> Any:
    raise AmdSmiError


def test_amd_smi_supplies_missing_metrics(machine: FakeMachine) -> None:
    kind = amd_gpus(
        machine,
        amdsmi(
            amdsmi_get_gpu_activity=lambda handle: {"gfx_activity": 64, "umc_activity": "N/A"},
            amdsmi_get_gpu_vram_usage=lambda handle: {"vram_total": 196592, "vram_used": 2048},
            amdsmi_get_power_info=lambda handle: {
                "current_socket_power": "N/A",
                "average_socket_power": 140,
            },
            amdsmi_get_gpu_process_list=lambda handle: [
                {"pid": 4711, "memory_usage": {"vram_mem": GIB}},
                {"pid": 4712, "memory_usage": {}},
            ],
        ),
    )
    kind.discover()
    sample = kind.sample()
    assert sample[f"{UUID}0"] == {
        "utilization_percent": 64,
        "memory_used_bytes": 2 * GIB,
        "temperature_celsius": 45.5,
        "power_watts": 140,
    }
    # The values in files take precedence over those of the library.
    assert sample[f"{UUID}1"]["utilization_percent"] == 37
    assert kind.reports_processes
    assert kind.processes()[:2] == [
        DeviceProcess(f"{UUID}0", 4711, GIB),
        DeviceProcess(f"{UUID}0", 4712, None),
    ]


@pytest.mark.parametrize(
    "module, reports_processes",
    [
        pytest.param(amdsmi(amdsmi_init=raise_amdsmi_error), False, id="no driver"),
        pytest.param(amdsmi(amdsmi_get_gpu_activity=raise_amdsmi_error), True, id="failing call"),
        pytest.param(
            amdsmi(amdsmi_get_processor_handles=raise_amdsmi_error),
            True,
            id="library lists no GPU",
        ),
    ],
)
def test_metric_missing_from_amd_smi_is_none(
    machine: FakeMachine, module: Any, reports_processes: bool
) -> None:
    kind = amd_gpus(machine, module)
    kind.discover()
    assert kind.sample()[f"{UUID}0"]["utilization_percent"] is None
    assert (kind.reports_processes, kind.processes()) == (reports_processes, [])


class Tool:
    """A fake `rbln-stat` that lists four devices.

    It creates and removes the device nodes of groups, and records the group commands.
    """

    def __init__(self, machine: FakeMachine) -> None:
        self.log = machine.root / "commands"
        self.devices = machine.root / "dev"
        self.refuses = machine.root / "refuses"
        items = [{"npu": n, "name": "RBLN-CA25", "uuid": f"rbln-{n}"} for n in range(4)]
        contexts = [
            {"npu": "1", "pid": "4711", "memalloc": "1024"},
            {"npu": "2", "pid": "4712", "memalloc": "unknown"},
            {"npu": "9", "pid": "1", "memalloc": "1"},
        ]
        machine.files({f"/dev/rbln{n}": "" for n in range(4)} | {"/dev/rsd0": ""})
        listing = json.dumps({"devices": items, "contexts": contexts})
        place = machine.tools / "rbln-stat"
        place.write_text(
            f"""#!/bin/sh
if [ "$1" != group ]; then echo '{listing}'; exit; fi
test -e {self.refuses} && {{ echo 'device is busy' >&2; exit 1; }}
echo "$@" >> {self.log}
test "$2" = -c && touch {self.devices}/rsd$3
test "$2" = -d && rm {self.devices}/rsd$3
exit 0
"""
        )
        place.chmod(0o755)

    def clear_commands(self) -> None:
        self.log.unlink(missing_ok=True)

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def groups(self) -> list[str]:
        return sorted(path.name for path in self.devices.glob("rsd*"))


def discover_atoms(machine: FakeMachine) -> tuple[Atoms, list[Device]]:
    kind = Atoms(built_in()["atom-max"], "m1", HostAccess(machine.root))
    return kind, kind.discover()


def device_grants(devices: Sequence[Device], kernel: str = "k1") -> list[DeviceGrant]:
    return [DeviceGrant(kernel, d.id, d.family, 1000, None, "atom-max.device") for d in devices]


def grant_all(devices: Sequence[Device]) -> list[GrantedDevice]:
    return [GrantedDevice(device, 1000, "atom-max.device") for device in devices]


def test_several_devices_are_joined_into_one_group(machine: FakeMachine) -> None:
    tool = Tool(machine)
    kind, devices = discover_atoms(machine)
    one = kind.inject(grant_all(devices[:1]), "docker")
    assert (list(one.device_nodes), tool.lines()) == (["/dev/rbln0"], [])
    part = kind.inject(grant_all(devices[1:3]), "docker")
    assert tool.lines() == ["group -c 2 -a 1,2"]
    assert list(part.device_nodes) == [
        "/dev/rbln1",
        "/dev/rbln2",
        {"path": "/dev/rsd2", "target": "/dev/rsd0"},
    ]
    for _ in range(2):
        kind.release(device_grants(devices[1:3]))
    assert tool.lines()[1:] == ["group -d 2"]


def test_stray_groups_of_a_killed_agent_are_removed(machine: FakeMachine) -> None:
    tool = Tool(machine)
    kind, devices = discover_atoms(machine)
    kind.inject(grant_all(devices[:2]), "docker")
    kind.inject(grant_all(devices[2:]), "docker")
    assert tool.groups() == ["rsd0", "rsd1", "rsd3"]
    again = Atoms(built_in()["atom-max"], "m1", HostAccess(machine.root))
    again.reconcile(device_grants(devices[2:]))
    again.discover()
    tool.clear_commands()
    # The first session has ended, and its devices are granted again. Therefore its group is removed
    # before a new group is created. The second session keeps its group until its devices are
    # released.
    again.inject(grant_all(devices[:2]), "docker")
    assert tool.lines() == ["group -d 1", "group -c 1 -a 0,1"]
    again.release(device_grants(devices[2:]))
    assert tool.groups() == ["rsd0", "rsd1"]


def test_failed_group_creation_is_reported(machine: FakeMachine) -> None:
    tool = Tool(machine)
    kind, devices = discover_atoms(machine)
    tool.refuses.touch()
    with pytest.raises(Unavailable, match="device is busy"):
        kind.inject(grant_all(devices[:2]), "docker")
    kind.release(device_grants(devices[:2]))


def test_processes_are_read_from_contexts(machine: FakeMachine) -> None:
    Tool(machine)
    kind, _ = discover_atoms(machine)
    assert kind.processes() == [
        DeviceProcess("rbln-1", 4711, 1024),
        DeviceProcess("rbln-2", 4712, None),
    ]


def test_vfio_tpu_gets_node_of_its_iommu_group(machine: FakeMachine) -> None:
    for number, (vendor, device) in enumerate([("0x1ae0", "0x0063"), ("0x10de", "0x2330")]):
        address = f"0000:0{number}:05.0"
        texts = {"vendor": vendor, "device": device, "numa_node": "1"}
        machine.pci(address, f"/sys/bus/pci/drivers/vfio-pci/{address}", texts)
        machine.pci(address, f"/sys/bus/pci/devices/{address}", texts)
        group = machine.root / f"sys/kernel/iommu_groups/{7 + number}"
        group.mkdir(parents=True)
        (machine.root / f"sys/devices/{address}/iommu_group").symlink_to(group)
    machine.files({"/dev/vfio/7": "", "/dev/vfio/8": "", "/dev/vfio/vfio": ""})
    kind = machine.kind("tpu")
    (chip,) = kind.discover()
    assert (chip.model, chip.numa_node, chip.facts["pci"]) == ("TPU v5e", 1, "0000:00:05.0")
    part = kind.inject([GrantedDevice(chip, 1000, "tpu.device")], "docker")
    assert list(part.device_nodes) == ["/dev/vfio/7", "/dev/vfio/vfio"]
    assert part.environ["TPU_VISIBLE_CHIPS"] == "0"
