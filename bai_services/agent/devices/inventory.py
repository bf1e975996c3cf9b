"""The devices of this machine, read before each heartbeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from bai_services.core.cluster.device_sharing import Level

from .base import Device, DeviceKind, DeviceProcess, Holding

log = logging.getLogger(__name__)

# A driver that hangs must not delay a heartbeat for longer.
LOOK_SECONDS = 5.0
TEND_SECONDS = 5.0


class Inventory:
    """Knows every device of each kind; devices of a driver that hangs are unhealthy."""

    def __init__(self, kinds: Sequence[DeviceKind], masked: Iterable[str] = ()) -> None:
        """``masked`` contains ids of devices that are never offered."""
        self._masked = frozenset(masked)
        self.kinds: Mapping[str, DeviceKind] = {kind.family: kind for kind in kinds}
        self.devices: Mapping[str, Device] = {}
        self._found: dict[str, list[Device]] = {}
        self._used: dict[str, Mapping[str, Any]] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def look(self) -> list[dict[str, Any]]:
        """Read all devices and return them in the format of heartbeats."""
        await asyncio.gather(*(self._look_at(kind) for kind in self.kinds.values()))
        self.devices = self._merged()
        reports = []
        for device in self.devices.values():
            report = device.to_report()
            if used := self._used.get(device.id):
                report["facts"] = {**report["facts"], "usage": dict(used)}
            reports.append(report)
        return reports

    def facts(self) -> dict[str, Any]:
        """Return the enforcement levels of the families on this machine, and the results of the
        search.
        """
        held: dict[str, list[Level]] = {}
        for device in self.devices.values():
            held.setdefault(device.family, []).append(device.sharing.level)
        return {
            # If the devices of a family differ, the weakest level.
            "enforcement": {
                family: min(levels, key=lambda level: level.firmness).value
                for family, levels in sorted(held.items())
            },
            "discovery": [asdict(kind.finding()) for kind in self.kinds.values()],
        }

    def sample(self, device_id: str) -> Mapping[str, Any]:
        """Return the usage of a device at the last reading."""
        return self._used.get(device_id, {})

    async def processes(self) -> list[DeviceProcess]:
        """Return the processes that hold memory of devices of this machine."""
        lists = [asyncio.to_thread(kind.processes) for kind in self.kinds.values()]
        return [process for found in await asyncio.gather(*lists) for process in found]

    async def end(self, processes: Iterable[DeviceProcess]) -> None:
        """Let processes finish their work on devices before they are killed."""
        by_family: dict[str, list[DeviceProcess]] = {}
        for process in processes:
            if (device := self.devices.get(process.device_id)) is not None:
                by_family.setdefault(device.family, []).append(process)
        for family, mine in by_family.items():
            await asyncio.to_thread(self.kinds[family].end, mine)

    async def release(self, held: Iterable[Holding]) -> None:
        """Undo the preparation for a kernel that is gone."""
        for family, mine in _by_family(held).items():
            if (kind := self.kinds.get(family)) is not None:
                await asyncio.to_thread(kind.release, mine)

    async def reconcile(self, held: Iterable[Holding]) -> None:
        """Tell every device kind the assignments of this machine's kernels, before the first
        reading.
        """
        of_family = _by_family(held)
        for family, kind in self.kinds.items():
            await asyncio.to_thread(kind.reconcile, of_family.get(family, []))

    async def tend(self) -> None:
        """Maintain helper processes of the devices in a loop."""
        while True:
            for kind in self.kinds.values():
                try:
                    await asyncio.to_thread(kind.tend)
                except Exception:
                    log.exception("maintenance of %s devices failed", kind.family)
            await asyncio.sleep(TEND_SECONDS)

    async def close(self) -> None:
        """Stop waiting for drivers; a call that hangs ends with the process."""
        for task in self._looking.values():
            task.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)
        for kind in self.kinds.values():
            await asyncio.to_thread(kind.close)

    def _merged(self) -> dict[str, Device]:
        found: dict[str, Device] = {}
        for device in (d for devices in self._found.values() for d in devices):
            if device.id in found:
                log.error("two devices have the id %s; only the first is offered", device.id)
            elif device.id in self._masked:
                # Still known, so that running sessions are counted; unhealthy, so that nothing new
                # is placed.
                facts = {**device.facts, "masked": True}
                found[device.id] = replace(device, is_healthy=False, facts=facts)
            else:
                found[device.id] = device
        return found

    async def _look_at(self, kind: DeviceKind) -> None:
        task = self._looking.get(kind.family)
        if task is None:
            task = self._looking[kind.family] = asyncio.create_task(self._read(kind))
        try:
            await asyncio.wait_for(asyncio.shield(task), LOOK_SECONDS)
        except TimeoutError:
            log.warning("the driver of %s devices does not answer", kind.family)
            known = self._found.get(kind.family, [])
            self._found[kind.family] = [replace(device, is_healthy=False) for device in known]
            return
        except Exception:
            # A driver may fail in any way; the machine's other devices must remain usable.
            log.exception("%s devices cannot be read", kind.family)
        del self._looking[kind.family]

    async def _read(self, kind: DeviceKind) -> None:
        self._found[kind.family] = await asyncio.to_thread(kind.discover)
        self._used.update(await asyncio.to_thread(kind.sample))


def _by_family(held: Iterable[Holding]) -> dict[str, list[Holding]]:
    found: dict[str, list[Holding]] = {}
    for one in held:
        found.setdefault(one.family, []).append(one)
    return found
