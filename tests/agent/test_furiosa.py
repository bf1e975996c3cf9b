"""Furiosa's cards: hwmon sensors, and a fake of the vendor's Python binding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from bai_services.agent.devices.host_access import HostAccess
from bai_services.agent.devices.table import built_in
from bai_services.agent.devices.vendors.furiosa import FuriosaSmi
from bai_services.agent.devices.vendors.rngd import Rngds

from .test_vendors import UUID, FakeMachine, furiosa, machine

__all__ = ["machine"]

GIB = 2**30
WARBOY, RNGD = "0000:3b:00.0", "0000:5e:00.0"
UNKNOWN = {
    "utilization_percent": None,
    "memory_used_bytes": None,
    "temperature_celsius": None,
    "power_watts": None,
}


def create_sensors(machine: FakeMachine, address: str, texts: Mapping[str, str]) -> None:
    folder = f"/sys/bus/pci/devices/{address}"
    machine.files({f"{folder}/hwmon/hwmon3/{name}": text for name, text in texts.items()})


def getters(**values: Any) -> Any:
    """Return an object like those of the binding: it has a getter for each value."""
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


def raise_device_error() -> Any:
    raise RuntimeError("Device lost error")


@dataclass
class Card:
    """The only card that the fake binding lists.

    ``counted`` has a pair for each processing element: total cycles and busy cycles. ``held`` and
    ``shared`` have a pair for each memory block: the elements that use the block, and the used
    bytes. ``broken`` has the names of the attributes that raise an error.
    """

    counted: Sequence[tuple[int, int]] = ((0, 0),) * 8
    held: Sequence[tuple[Sequence[int], int]] = ()
    shared: Sequence[tuple[Sequence[int], int]] = ()
    broken: Sequence[str] = ()

    def module(self) -> Any:
        return SimpleNamespace(init=lambda: None, list_devices=lambda: [self._device()])

    def _device(self) -> Any:
        counters = [
            getters(core=number, cycle_count=cycles, task_execution_cycle=worked)
            for number, (cycles, worked) in enumerate(self.counted)
        ]
        dram, shared = (
            getters(memory=[getters(core=list(core), in_use_bytes=used) for core, used in blocks])
            for blocks in (self.held, self.shared)
        )
        device = getters(
            device_info=getters(bdf=RNGD.upper()),
            device_performance_counter=getters(pe_performance_counters=counters),
            memory_utilization=getters(dram=dram, dram_shared=shared),
            device_temperature=getters(soc_peak=51.5, ambient=30.0),
            power_consumption=62.0,
        )
        for name in self.broken:
            setattr(device, name, raise_device_error)
        return device


def make_rngd(machine: FakeMachine, module: Any, parts: int = 1) -> Rngds:
    furiosa(machine)
    row = replace(built_in()["rngd"], parts=parts)
    return Rngds(row, "m1", HostAccess(machine.root), FuriosaSmi(module))


@pytest.mark.parametrize(
    "texts, celsius, watts",
    [
        pytest.param(
            {
                "temp1_input": "36500",
                "temp2_input": "41250",
                "power1_average": "9000000",
                "power2_average": "38500000",
                "power2_label": "RMS_TOTAL",
            },
            41.25,
            38.5,
            id="maximum temperature, and the power of the whole card",
        ),
        pytest.param({"power1_average": "12000000"}, None, 12.0, id="a single power sensor"),
        pytest.param(
            {"power1_average": "9000000", "power2_average": "3000000"},
            None,
            None,
            id="several power sensors without a label for the card",
        ),
        pytest.param({"temp1_input": "N/A"}, None, None, id="temperature is not a number"),
        pytest.param({}, None, None, id="no sensor"),
    ],
)
def test_hwmon_sensors_report_temperature_and_power(
    machine: FakeMachine, texts: Mapping[str, str], celsius: float | None, watts: float | None
) -> None:
    furiosa(machine)
    create_sensors(machine, WARBOY, texts)
    kind = machine.kind("warboy")
    kind.discover()
    expected = {"temperature_celsius": celsius, "power_watts": watts}
    assert kind.sample() == {UUID: {**UNKNOWN, **expected}}


def test_numa_node_is_read_from_the_pci_device(machine: FakeMachine) -> None:
    furiosa(machine)
    machine.files({f"/sys/bus/pci/devices/{RNGD}/numa_node": "1"})
    (warboy,), (card,) = (machine.kind(family).discover() for family in ("warboy", "rngd"))
    assert (warboy.numa_node, card.numa_node) == (None, 1)


def test_furiosa_smi_reports_rngd_metrics(machine: FakeMachine) -> None:
    card = Card(
        counted=[(1000, 100), (1000, 0), *[(0, 0)] * 6],
        held=[([number], GIB) for number in range(8)],
        shared=[(range(8), 2 * GIB)],
    )
    kind = make_rngd(machine, card.module())
    kind.discover()
    # The counters are totals: the utilization needs two samples.
    first = kind.sample()["RNGD-1"]
    assert first == {
        "utilization_percent": None,
        "memory_used_bytes": 10 * GIB,
        "temperature_celsius": 51.5,
        "power_watts": 62.0,
    }
    # The last six elements are idle: no process has opened them, so their counters stay 0.
    card.counted = [(3000, 1700), (3000, 1600), *[(0, 0)] * 6]
    assert kind.sample()["RNGD-1"]["utilization_percent"] == 20.0
    # The first element was closed and opened again, which reset its counters.
    card.counted = [(500, 500), (4000, 2600), *[(0, 0)] * 6]
    assert kind.sample()["RNGD-1"]["utilization_percent"] is None
    # No counter has changed since the last sample, so all elements are idle.
    assert kind.sample()["RNGD-1"]["utilization_percent"] == 0.0


def test_hwmon_sensors_take_precedence_over_furiosa_smi(machine: FakeMachine) -> None:
    create_sensors(machine, RNGD, {"temp1_input": "40980"})
    kind = make_rngd(machine, Card().module())
    kind.discover()
    sample = kind.sample()["RNGD-1"]
    assert (sample["temperature_celsius"], sample["power_watts"]) == (40.98, 62.0)


def test_metrics_of_an_rngd_partition_exclude_other_partitions(machine: FakeMachine) -> None:
    card = Card(
        counted=[(1000, 0)] * 8,
        held=[([number], number * GIB) for number in range(8)],
        # Memory that all elements share is not counted for any partition.
        shared=[(range(8), 5 * GIB)],
    )
    kind = make_rngd(machine, card.module(), parts=2)
    kind.discover()
    kind.sample()
    card.counted = [(2000, 500)] * 4 + [(2000, 1000)] * 4
    common = {"temperature_celsius": 51.5, "power_watts": None}
    assert kind.sample() == {
        "RNGD-1.pe0-3": {
            "utilization_percent": 50.0, "memory_used_bytes": 6 * GIB, **common,
        },
        "RNGD-1.pe4-7": {
            "utilization_percent": 100.0, "memory_used_bytes": 22 * GIB, **common,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    "broken, unknown",
    [
        ("device_performance_counter", ["utilization_percent"]),
        ("memory_utilization", ["memory_used_bytes"]),
        ("device_temperature", ["temperature_celsius"]),
        ("power_consumption", ["power_watts"]),
        ("device_info", list(UNKNOWN)),
    ],
)
def test_metric_that_furiosa_smi_cannot_read_is_unknown(
    machine: FakeMachine, broken: str, unknown: Sequence[str]
) -> None:
    kind = make_rngd(machine, Card(held=[(range(8), 0)], broken=[broken]).module())
    kind.discover()
    sample = kind.sample()["RNGD-1"]
    assert [name for name in UNKNOWN if sample[name] is None] == list(unknown)


def test_furiosa_smi_initialization_is_retried(machine: FakeMachine) -> None:
    module = Card(held=[(range(8), GIB)]).module()
    starts, module.init = module.init, raise_device_error
    kind = make_rngd(machine, module)
    kind.discover()
    assert kind.sample() == {"RNGD-1": UNKNOWN}
    module.init = starts
    assert kind.sample()["RNGD-1"]["memory_used_bytes"] == GIB
