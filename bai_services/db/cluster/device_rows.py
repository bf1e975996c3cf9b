"""Rows of devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """``capacity``, ``used`` and ``share_in_force`` are in thousandths of the device."""

    id: str
    agent_id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None
    numa_node: int | None
    is_simulated: bool
    is_healthy: bool
    capacity: int
    used: int
    facts: Mapping[str, Any]
    share_in_force: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDeviceRow(DeviceRow):
    """A device with the resource group and the status of its agent."""

    resource_group: str
    status: str
