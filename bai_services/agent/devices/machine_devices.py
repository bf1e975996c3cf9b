"""This machine's devices, refreshed before each heartbeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level

from .base import Device, DeviceGrant, DeviceKind, DeviceProcess

log = logging.getLogger(__name__)

# Timeout for reading one driver: a hung driver must not block the heartbeat.
READ_TIMEOUT_SECONDS = 5.0
MAINTENANCE_INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The processes that use memory of devices, and the families that could not be read."""

    processes: Sequence[DeviceProcess]
    unread_families: Set[str]


class MachineDevices:
    """The devices of all kinds; the devices of a hung driver are unhealthy."""

    def __init__(self, kinds: Sequence[DeviceKind], masked: Iterable[str] = ()) -> None:
        """``masked`` contains ids of devices that are not allocated to new sessions."""
        self._masked = frozenset(masked)
        self.kinds: Mapping[str, DeviceKind] = {kind.family: kind for kind in kinds}
        self.by_id: Mapping[str, Device] = {}
        self._found: dict[str, list[Device]] = {}
        self._usage: dict[str, Mapping[str, Any]] = {}
        self._pending_reads: dict[str, asyncio.Task[None]] = {}
        self._process_reads: dict[str, asyncio.Task[list[DeviceProcess]]] = {}

    async def refresh(self) -> list[dict[str, Any]]:
        """Read all devices and return them in the format of heartbeats."""
        await asyncio.gather(*(self._refresh_kind(kind) for kind in self.kinds.values()))
        self.by_id = self._merged()
        reports = []
        for device in self.by_id.values():
            report = device.to_report()
            if used := self._usage.get(device.id):
                report["facts"] = {**report["facts"], "usage": dict(used)}
            reports.append(report)
        return reports

    def facts(self) -> dict[str, Any]:
        """Return the enforcement level of each device family and the discovery findings."""
        levels_by_family: dict[str, list[Level]] = {}
        for device in self.by_id.values():
            levels_by_family.setdefault(device.family, []).append(device.sharing.level)
        return {
            # A family reports the weakest level of its devices.
            "enforcement": {
                family: Level.weakest(levels).value
                for family, levels in sorted(levels_by_family.items())
            },
            "discovery": [asdict(kind.finding()) for kind in self.kinds.values()],
        }

    def sample(self, device_id: str) -> Mapping[str, Any]:
        """Return the metrics of a device at the last refresh; {} if unknown."""
        return self._usage.get(device_id, {})

    async def processes(self) -> ProcessReading:
        """Return the processes that use memory of this machine's devices now."""
        lists = await asyncio.gather(*(self._read_processes(kind) for kind in self.kinds.values()))
        return ProcessReading(
            [process for found in lists if found is not None for process in found],
            {family for family, found in zip(self.kinds, lists, strict=True) if found is None},
        )

    async def detach(self, processes: Iterable[DeviceProcess]) -> None:
        """Disconnect processes from their devices gracefully before they are killed."""
        by_family: dict[str, list[DeviceProcess]] = {}
        for process in processes:
            if (device := self.by_id.get(process.device_id)) is not None:
                by_family.setdefault(device.family, []).append(process)
        for family, family_processes in by_family.items():
            await asyncio.to_thread(self.kinds[family].detach, family_processes)

    async def release(self, grants: Iterable[DeviceGrant]) -> None:
        """Undo the injection of the devices of a removed kernel."""
        for family, family_grants in _by_family(grants).items():
            if (kind := self.kinds.get(family)) is not None:
                await asyncio.to_thread(kind.release, family_grants)

    async def reconcile(self, grants: Iterable[DeviceGrant]) -> None:
        """Pass the existing device grants to every device kind; called once, before the first
        refresh.
        """
        by_family = _by_family(grants)
        for family, kind in self.kinds.items():
            await asyncio.to_thread(kind.reconcile, by_family.get(family, []))

    async def maintain(self) -> None:
        """Maintain helper processes of the devices in a loop."""
        while True:
            for kind in self.kinds.values():
                try:
                    await asyncio.to_thread(kind.maintain)
                except Exception:
                    log.exception("maintenance of %s devices failed", kind.family)
            await asyncio.sleep(MAINTENANCE_INTERVAL_SECONDS)

    async def close(self) -> None:
        """Stop waiting for drivers, and close all device kinds.

        A hung driver call cannot be cancelled: it ends with the agent process.
        """
        tasks = [*self._pending_reads.values(), *self._process_reads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for kind in self.kinds.values():
            await asyncio.to_thread(kind.close)

    def _merged(self) -> dict[str, Device]:
        devices_by_id: dict[str, Device] = {}
        for device in (d for devices in self._found.values() for d in devices):
            if device.id in devices_by_id:
                log.error("duplicate device id %s; only the first device is offered", device.id)
            elif device.id in self._masked:
                # A masked device is reported, because running sessions may use it; but as
                # unhealthy, so that no new session is placed on it.
                facts = {**device.facts, "masked": True}
                devices_by_id[device.id] = replace(device, is_healthy=False, facts=facts)
            else:
                devices_by_id[device.id] = device
        return devices_by_id

    async def _refresh_kind(self, kind: DeviceKind) -> None:
        task = self._pending_reads.get(kind.family)
        if task is None:
            task = self._pending_reads[kind.family] = asyncio.create_task(self._read(kind))
        try:
            await asyncio.wait_for(asyncio.shield(task), READ_TIMEOUT_SECONDS)
        except TimeoutError:
            log.warning("the driver of %s devices does not respond", kind.family)
            known = self._found.get(kind.family, [])
            self._found[kind.family] = [replace(device, is_healthy=False) for device in known]
            return
        except Exception:
            # A driver may raise any exception; the machine's other devices must remain usable.
            log.exception("%s devices cannot be read", kind.family)
        del self._pending_reads[kind.family]

    async def _read_processes(self, kind: DeviceKind) -> list[DeviceProcess] | None:
        """Return the processes that use devices of one kind; None if they cannot be read."""
        # At most one read per family may be in progress, because a hung read occupies a thread.
        task = self._process_reads.get(kind.family)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(kind.processes))
            self._process_reads[kind.family] = task
            task.add_done_callback(lambda _: self._process_reads.pop(kind.family))
        try:
            return await asyncio.wait_for(asyncio.shield(task), READ_TIMEOUT_SECONDS)
        except TimeoutError:
            log.warning("the driver of %s devices takes too long to list processes", kind.family)
        except Exception:
            # A driver may raise any exception; the machine's other devices must remain usable.
            log.exception("the processes of %s devices cannot be read", kind.family)
        return None

    async def _read(self, kind: DeviceKind) -> None:
        self._found[kind.family] = await asyncio.to_thread(kind.discover)
        self._usage.update(await asyncio.to_thread(kind.sample))


def _by_family(grants: Iterable[DeviceGrant]) -> dict[str, list[DeviceGrant]]:
    by_family: dict[str, list[DeviceGrant]] = {}
    for grant in grants:
        by_family.setdefault(grant.family, []).append(grant)
    return by_family
