"""Accelerators of the vendor table, with fakes of the files and tools that vendors document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices.base import GrantedDevice
from bai_services.agent.devices.host_access import HostAccess, json_pointer
from bai_services.agent.devices.kinds import VENDOR_CLASSES, Machine, all_kinds
from bai_services.agent.devices.machine_devices import MachineDevices
from bai_services.agent.devices.table import built_in, load_table, read_table
from bai_services.agent.devices.table_devices import TableDevices
from bai_services.core.errors import InvalidRequest

UUID = "0a1b2c3d"


class FakeMachine:
    """A folder that replaces ``/``, and a folder on ``PATH`` for fakes of the vendors' tools."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "root"
        self.tools = folder / "tools"
        self.root.mkdir()
        self.tools.mkdir()
        monkeypatch.setenv("PATH", f"{self.tools}:/usr/bin:/bin")

    def files(self, texts: Mapping[str, str]) -> None:
        for path, text in texts.items():
            file = self.root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    def pci(self, address: str, link: str, texts: Mapping[str, str]) -> None:
        """Create a PCI device and the symbolic link ``link`` to it."""
        self.files({f"/sys/devices/{address}/{name}": text for name, text in texts.items()})
        link_path = self.root / link.lstrip("/")
        link_path.parent.mkdir(parents=True, exist_ok=True)
        link_path.symlink_to(self.root / "sys/devices" / address)

    def tool(self, name: str, prints: str, code: int = 0) -> None:
        file = self.tools / name
        file.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {code}\n")
        file.chmod(0o755)

    def kind(self, family: str) -> TableDevices:
        make = VENDOR_CLASSES.get(family, TableDevices)
        return make(built_in()[family], "m1", HostAccess(self.root))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return FakeMachine(tmp_path, monkeypatch)


def amd(machine: FakeMachine) -> None:
    for number, (device_class, device) in enumerate(
        [("0x120000", "0x74a1"), ("0x038000", "0x740c"), ("0x030000", "0x744c")]
    ):
        render = f"/sys/class/drm/renderD{128 + number}"
        machine.pci(
            f"0000:0{number}:00.0",
            f"{render}/device",
            {
                "vendor": "0x1002",
                "class": device_class,
                "device": device,
                "unique_id": f"{UUID}{number}",
                "mem_info_vram_total": str(192 * 2**30),
                "mem_info_vram_used": str(2**30),
                "gpu_busy_percent": "37",
                "numa_node": "-1" if number else "1",
                "hwmon/hwmon4/temp1_input": "45500",
                "hwmon/hwmon4/power1_average": "123000000",
            },
        )
        machine.files({f"/dev/dri/renderD{128 + number}": ""})
    machine.files({"/dev/kfd": ""})


def gaudi(machine: FakeMachine) -> None:
    machine.tool(
        "hl-smi",
        "0, 01P0-HL2080A0-15, HL-225, 0000:19:00.0, 98304 MiB, 768 MiB, 12 %, 31 C, 98 W\n"
        "1, 01P0-HL3080A0-16, HL-325L, 0000:1a:00.0, 131072 MiB, 672 MiB, N/A, 30 C, 201 W",
    )
    for number in (0, 1):
        machine.files({f"/dev/accel/accel{number}": "", f"/dev/accel/accel_controlD{number}": ""})


def furiosa(machine: FakeMachine) -> None:
    machine.files(
        {
            "/sys/class/npu_mgmt/npu1_mgmt/platform_type": "FuriosaAI",
            "/sys/class/npu_mgmt/npu1_mgmt/device_uuid": UUID,
            "/sys/class/npu_mgmt/npu1_mgmt/device_type": "Warboy",
            "/sys/class/npu_mgmt/npu1_mgmt/busname": "0000:3b:00.0",
            "/sys/class/npu_mgmt/npu2_mgmt/platform_type": "Other",
            "/dev/npu1": "",
            "/dev/npu1pe0": "",
            "/dev/npu10": "",
            "/sys/class/rngd_mgmt/rngd!npu0mgmt/platform_type": "FuriosaAI",
            "/sys/class/rngd_mgmt/rngd!npu0mgmt/device_uuid": "RNGD-1",
            "/sys/class/rngd_mgmt/rngd!npu0mgmt/device_type": "RNGD",
            "/sys/class/rngd_mgmt/rngd!npu0mgmt/busname": "0000:5e:00.0",
            "/dev/rngd/npu0mgmt": "",
            "/dev/rngd/npu0pe0": "",
        }
    )


def rebellions(machine: FakeMachine) -> None:
    names = ["RBLN-CA02", "RBLN-CA12", "RBLN-CA25"]
    items = [
        {
            "npu": number,
            "name": name,
            "uuid": f"rbln-{number}",
            "memory": {"used": "1048576", "total": "16877879296"},
            "util": "3.5",
            "temperature": "41C",
            "card_power": "45000mW",
            "pci": {"bus_id": f"0000:0{number}:00.0", "numa_node": "1"},
        }
        for number, name in enumerate(names)
    ]
    machine.tool("rbln-stat", json.dumps({"devices": items, "contexts": []}))
    machine.files({f"/dev/rbln{number}": "" for number in range(3)})


def graphcore(machine: FakeMachine) -> None:
    machine.tool("gc-monitor", json.dumps({"cards": [{"id": "2", "serial": "S1", "type": "C600"}]}))
    machine.files({"/dev/ipu2": "", "/etc/ipuof.conf.d/ipuof.conf": "{}"})


def others(machine: FakeMachine) -> None:
    machine.pci(
        "0000:d8:00.0",
        "/sys/bus/pci/drivers/xclmgmt/0000:d8:00.0",
        {"vendor": "0x10ee", "device": "0x5000"},
    )
    machine.pci(
        "0000:21:00.0", "/sys/class/accel/accel3/device", {"vendor": "0x1ae0", "device": "0x0063"}
    )
    machine.pci("0000:41:00.0", "/sys/class/tenstorrent/tenstorrent!5/device", {"numa_node": "0"})
    machine.files(
        {
            "/sys/bus/pci/devices/0000:d8:00.1/drm/renderD140/x": "",
            "/dev/xfpga/xvc_pri.m55296.0": "",
            "/dev/xfpga/xvc_pri.m1.0": "",
            "/dev/accel3": "",
            "/sys/class/tenstorrent/tenstorrent!5/tt_serial": "TT5",
            "/sys/class/tenstorrent/tenstorrent!5/tt_card_type": "n300",
            "/dev/tenstorrent/5": "",
            "/dev/hugepages-1G/x": "",
            "/sys/class/groq/groqA0/x": "",
            "/dev/groqA0": "",
            "/sys/class/rdu/rdu0/x": "",
            "/dev/rdu0": "",
            "/sys/class/sapeon/sapeon0/x": "",
            "/dev/sapeon0": "",
        }
    )


EVERYTHING = (amd, gaudi, furiosa, rebellions, graphcore, others)


@pytest.mark.parametrize(
    ("family", "ids", "model", "nodes"),
    [
        ("rocm", [f"{UUID}0", f"{UUID}1"], "Instinct MI300X", ["/dev/dri/renderD128", "/dev/kfd"]),
        (
            "gaudi2",
            ["01P0-HL2080A0-15"],
            "HL-225",
            ["/dev/accel/accel0", "/dev/accel/accel_controlD0"],
        ),
        (
            "gaudi3",
            ["01P0-HL3080A0-16"],
            "HL-325L",
            ["/dev/accel/accel1", "/dev/accel/accel_controlD1"],
        ),
        ("warboy", [UUID], "Warboy", ["/dev/npu1", "/dev/npu1pe0"]),
        ("rngd", ["RNGD-1"], "RNGD", ["/dev/rngd/npu0mgmt", "/dev/rngd/npu0pe0"]),
        ("atom", ["rbln-0"], "RBLN-CA02", ["/dev/rbln0"]),
        ("atom-plus", ["rbln-1"], "RBLN-CA12", ["/dev/rbln1"]),
        ("atom-max", ["rbln-2"], "RBLN-CA25", ["/dev/rbln2"]),
        ("ipu", ["S1"], "C600", ["/dev/ipu2"]),
        (
            "hyperaccel-lpu",
            ["m1-hyperaccel-lpu-0"],
            "HyperAccel LPU",
            ["/dev/xfpga/xvc_pri.m55296.0", "/dev/dri/renderD140"],
        ),
        (
            "tenstorrent",
            ["TT5"],
            "n300",
            [{"path": "/dev/tenstorrent/5", "target": "/dev/tenstorrent/0"}],
        ),
        ("tpu", ["m1-tpu-3"], "TPU v5e", ["/dev/accel3"]),
        ("groq", ["m1-groq-0"], "Groq LPU", ["/dev/groqA0"]),
        ("sambanova", ["m1-sambanova-0"], "SambaNova SN30/SN40L", ["/dev/rdu0"]),
        ("sapeon", ["m1-sapeon-0"], "Sapeon X220/X330", ["/dev/sapeon0"]),
    ],
)
def test_vendor_devices_are_discovered_and_injected(
    machine: FakeMachine, family: str, ids: list[str], model: str, nodes: list[Any]
) -> None:
    for vendor in EVERYTHING:
        vendor(machine)
    kind = machine.kind(family)
    devices = kind.discover()
    assert [d.id for d in devices] == ids
    assert devices[0].model == model
    assert all(d.is_healthy and d.family == family for d in devices)
    assert (kind.finding().found, kind.finding().reason) == (len(ids), "")
    part = kind.inject([GrantedDevice(devices[0], 1000, f"{family}.device")], "docker")
    # The nodes include no node of another device.
    assert list(part.device_nodes) == nodes


def test_every_row_of_the_table_is_tested() -> None:
    cases = test_vendor_devices_are_discovered_and_injected.pytestmark[0].args[1]
    assert {case[0] for case in cases} == set(built_in())


def test_unknown_metric_in_a_sample_is_none(machine: FakeMachine) -> None:
    for vendor in EVERYTHING:
        vendor(machine)
    rocm = machine.kind("rocm")
    first, second = rocm.discover()
    assert (first.memory_bytes, first.numa_node, second.numa_node) == (192 * 2**30, 1, None)
    assert rocm.sample()[first.id] == {
        "utilization_percent": 37,
        "memory_used_bytes": 2**30,
        "temperature_celsius": 45.5,
        "power_watts": 123,
    }
    gaudi3 = machine.kind("gaudi3")
    (device,) = gaudi3.discover()
    assert device.memory_bytes == 128 * 2**30
    assert gaudi3.sample()[device.id] == {
        "utilization_percent": None,  # The vendor's tool prints N/A.
        "memory_used_bytes": 672 * 2**20,
        "temperature_celsius": 30,
        "power_watts": 201,
    }
    atom = machine.kind("atom")
    (device,) = atom.discover()
    assert atom.sample()[device.id]["utilization_percent"] == 3.5


def test_injection_has_environment_mounts_and_capabilities_of_the_row(machine: FakeMachine) -> None:
    for vendor in EVERYTHING:
        vendor(machine)
    tpu = machine.kind("tpu")
    part = tpu.inject([GrantedDevice(d, 1000, "tpu.device") for d in tpu.discover()], "docker")
    assert part.environ["TPU_VISIBLE_CHIPS"] == "3"
    assert part.environ["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,1,1"
    assert part.memlock
    tt = machine.kind("tenstorrent")
    part = tt.inject(
        [GrantedDevice(d, 1000, "tenstorrent.device") for d in tt.discover()], "docker"
    )
    assert list(part.mounts) == [
        {"source": "/dev/hugepages-1G", "target": "/dev/hugepages-1G", "read_only": False}
    ]
    assert list(part.capabilities) == ["IPC_LOCK"]


def test_missing_device_is_reported_as_unhealthy(machine: FakeMachine) -> None:
    rebellions(machine)
    kind = machine.kind("atom")
    assert [d.is_healthy for d in kind.discover()] == [True]
    machine.tool("rbln-stat", json.dumps({"devices": []}))
    assert [d.is_healthy for d in kind.discover()] == [False]
    assert kind.sample() == {}


@pytest.mark.parametrize(
    ("prints", "code", "reason"),
    [
        ("{", 0, "printed invalid JSON"),
        ("[]", 1, "exited with code 1"),
        ('{"devices": 5}', 0, "has no list at /devices"),
        ('{"devices": [{"npu": "x", "name": "RBLN-CA02"}]}', 0, "device number 'x'"),
    ],
)
def test_failing_vendor_tool_is_reported(
    machine: FakeMachine, prints: str, code: int, reason: str
) -> None:
    rebellions(machine)
    kind = machine.kind("atom")
    assert len(kind.discover()) == 1
    machine.tool("rbln-stat", prints, code)
    # The device remains registered, because a session may use it. It is not offered, because its
    # health is unknown.
    assert [d.is_healthy for d in kind.discover()] == [False]
    assert reason in kind.finding().reason


def test_duplicate_device_id_is_reported(machine: FakeMachine) -> None:
    item = {"npu": 0, "name": "RBLN-CA02", "uuid": "same"}
    machine.tool("rbln-stat", json.dumps({"devices": [item, {**item, "npu": 1}]}))
    kind = machine.kind("atom")
    assert [d.index for d in kind.discover()] == [0]
    assert "duplicate device id same" in kind.finding().reason


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("warboy", "there is no /sys/class/npu_mgmt/npu{i}_mgmt"),
        ("atom", "rbln-stat is not installed, or lists no device"),
        ("tpu", "no /sys/class/accel/accel{i} where device/vendor is 0x1ae0"),
    ],
)
def test_reason_is_reported_if_no_devices_are_found(
    machine: FakeMachine, family: str, reason: str
) -> None:
    machine.pci("0000:21:00.0", "/sys/class/accel/accel3/device", {"vendor": "0x8086"})
    kind = machine.kind(family)
    assert kind.discover() == []
    assert kind.finding().reason == reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "must map the names of families"),
        ("Warboy: {}", "Warboy: the name of a family must"),
        ("x: {title: X, tried: 'no', find: {path: /sys/x}, nods: []}", "x: unknown key nods"),
        ("x: {title: X, tried: 'no', find: {path: /sys/x, glob: a}}", "x.find: unknown key glob"),
        ("x: {title: X, tried: maybe, find: {path: /sys/x}}", "x.tried must be one of"),
        ("x: {title: X, tried: 'no', find: {}}", "needs either path or command"),
        ("x: {title: X, tried: 'no', find: {path: /sys/x}, nodes: /dev/x}", "must be a list"),
        ("x: {title: X, tried: 'no', find: {path: /sys/x}, metrics: {watts: {path: p}}}", "watts"),
        ("x: {title: X, tried: 'no', find: {path: /sys/x}, mounts: {/a: rx}}", "ro or rw"),
        ("x: {title: X, tried: 'no', find: {path: /s}, facts: {pci: '/s/{pci}'}}", "facts.pci"),
        ("x: {", "is not valid YAML"),
        ("x: {tried: 'no', find: {path: /sys/x}}", "title is missing"),
    ],
)
def test_invalid_table_error_names_the_location(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read_table(text, "table.yaml")


def test_table_file_adds_a_row(machine: FakeMachine, tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text("mychip: {title: My chip, tried: device, find: {path: '/dev/mychip{i}'}}")
    machine.files({"/dev/mychip7": ""})
    rows, wrong = load_table(str(table))
    assert (set(rows), wrong) == ({*built_in(), "mychip"}, {})
    kind = TableDevices(rows["mychip"], "m1", HostAccess(machine.root))
    assert [(d.id, d.index, d.model) for d in kind.discover()] == [("m1-mychip-7", 7, "My chip")]


@pytest.mark.parametrize(
    ("text", "family", "reason"),
    [
        pytest.param(
            """
            mychip: {title: My chip, tried: device, find: {path: '/dev/mychip{i}'}}
            warboy: {title: Ours, tried: device, find: {path: /sys/x}, nods: []}
            """,
            "warboy",
            "table.yaml: warboy: unknown key nods; valid keys are capabilities, divided",
            id="row with an unknown key",
        ),
        pytest.param("- a", "table", "must map the names of families", id="not a mapping"),
        pytest.param(b"\xff\xfe\x00", "table", "cannot be read", id="not UTF-8"),
        pytest.param(None, "table", "cannot be read", id="missing file"),
    ],
)
async def test_invalid_table_file_is_reported_and_valid_rows_are_used(
    machine: FakeMachine, tmp_path: Path, text: str | bytes | None, family: str, reason: str
) -> None:
    table = tmp_path / "table.yaml"
    if text is not None:
        table.write_bytes(text if isinstance(text, bytes) else text.encode())
    furiosa(machine)
    machine.files({"/dev/mychip7": ""})
    devices = MachineDevices(all_kinds(Machine("m1", HostAccess(machine.root)), 0, str(table)))
    seen = {report["id"] for report in await devices.refresh()}
    # The built-in rows and the valid rows of the file are used.
    mine = {"m1-mychip-7"} if family == "warboy" else set()
    assert seen == {UUID, "RNGD-1"} | mine
    findings = [f for f in devices.facts()["discovery"] if f["family"] == family]
    assert (findings[-1]["found"], reason in findings[-1]["reason"]) == (0, True)


async def test_masked_device_is_reported_as_unhealthy(
    machine: FakeMachine,
) -> None:
    furiosa(machine)
    kinds = all_kinds(Machine("m1", HostAccess(machine.root)), 1, "")
    devices = MachineDevices(kinds, masked=[UUID])
    reports = {r["id"]: r for r in await devices.refresh()}
    assert set(reports) == {"SIM-m1-0", UUID, "RNGD-1"}
    assert not reports[UUID]["is_healthy"]
    assert reports[UUID]["facts"]["masked"]
    assert reports["RNGD-1"]["is_healthy"]
    found = {f["family"]: f for f in devices.facts()["discovery"]}
    assert found["rngd"]["found"] == 1
    assert found["ipu"] == {
        "family": "ipu",
        "title": "Graphcore IPU",
        "tried": "stand-in",
        "found": 0,
        "reason": "gc-monitor is not installed, or lists no device",
    }


async def test_gpus_are_simulated_by_default_if_there_is_no_accelerator(
    machine: FakeMachine,
) -> None:
    async def devices(simulated_gpus: int | None) -> set[str]:
        kinds = all_kinds(Machine("m1", HostAccess(machine.root)), simulated_gpus, "")
        return {report["id"] for report in await MachineDevices(kinds).refresh()}

    assert await devices(None) == {"SIM-m1-0", "SIM-m1-1"}
    assert await devices(0) == set()
    furiosa(machine)
    assert await devices(None) == {UUID, "RNGD-1"}
    assert await devices(1) == {"SIM-m1-0", UUID, "RNGD-1"}


def test_json_pointer_follows_rfc_6901() -> None:
    data = {"a/b": [{"m~n": 8}], "": 0}
    assert json_pointer(data, "") == data
    assert json_pointer(data, "/a~1b/0/m~0n") == 8
    assert json_pointer(data, "/a~1b/1") is None
    assert json_pointer(data, "/nothing/here") is None
