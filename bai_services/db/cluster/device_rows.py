"""Rows of devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bai_services.core.cluster.records import DeviceFields


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow(DeviceFields):
    """A device; ``capacity``, ``used`` and ``share_in_force`` are in thousandths of the device.

    ``share_in_force`` is None if no share is in force.
    """

    capacity: int
    used: int
    facts: Mapping[str, Any]
    share_in_force: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDeviceRow(DeviceRow):
    """A device with the resource group and the status of its agent."""

    resource_group: str
    status: str
