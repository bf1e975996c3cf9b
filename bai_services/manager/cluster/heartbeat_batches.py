"""Process the heartbeats of many agents in few transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol

from bai_services.core.cluster.device_sharing import SHARING_FACTS
from bai_services.core.cluster.model import AgentStatus
from bai_services.db.cluster.agent_devices import NewDevice
from bai_services.db.cluster.agents import (
    AgentHeartbeat,
    AgentStore,
    HeartbeatResult,
    RecordedHeartbeat,
    RepeatedHeartbeat,
)

log = logging.getLogger(__name__)

# A heartbeat of each agent is compared with the database at least this often.
FULL_INTERVAL_SECONDS = 60.0

Kernels = Sequence[Mapping[str, Any]]


class Observer(Protocol):
    """Receives the kernels that heartbeats list; implemented in ``sessions/kernels.py``."""

    async def observe(self, reports: Mapping[str, Kernels]) -> object: ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A received heartbeat; ``kernels`` is None if the agent cannot list its kernels."""

    agent_id: str
    beat: AgentHeartbeat
    kernels: Kernels | None
    at: datetime
    result: asyncio.Future[HeartbeatResult]


@dataclass(frozen=True, slots=True)
class _Recorded:
    heartbeat: RecordedHeartbeat
    # When the heartbeat was last compared with the database, by the monotonic clock.
    compared_at: float


class HeartbeatBatches:
    """Collects heartbeats for a short time if there are many agents.

    With few agents, each heartbeat is processed at once. Most heartbeats differ from their agent's
    previous heartbeat only in facts. Three statements store all such heartbeats of a batch; two
    more compare the slots and devices of some agents with the database, if this is due. All other
    heartbeats, and those of a failed batch, are stored one by one.
    """

    def __init__(
        self,
        store: AgentStore,
        observer: Observer,
        collects_seconds: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """``collects_seconds``: how long heartbeats are collected; 0: no collection."""
        self._store = store
        self._observer = observer
        self._collects_seconds = collects_seconds
        self._monotonic = monotonic
        self._waiting: list[_Waiting] = []
        self._recorded: dict[str, _Recorded] = {}
        self._runner: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Cancel the processing; the agents repeat their heartbeats."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        for one in self._waiting:
            one.result.cancel()

    async def process(
        self, agent_id: str, beat: AgentHeartbeat, kernels: Kernels | None, at: datetime
    ) -> HeartbeatResult:
        """Store a heartbeat and compare its kernels with the expected ones; return the changes.

        Raises
        ------
        NotFound
            If the resource group of a new agent does not exist.
        """
        result = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(agent_id, beat, kernels, at, result))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="heartbeats")
        # The batch also contains heartbeats of other requests, so it continues if this request is
        # cancelled.
        return await asyncio.shield(result)

    async def _run(self) -> None:
        while self._waiting:
            if seconds := self._collects_seconds():
                await asyncio.sleep(seconds)
            batch = {one.agent_id: one for one in reversed(self._waiting)}
            # A second heartbeat of the same agent is part of the next batch.
            self._waiting = [one for one in self._waiting if batch[one.agent_id] is not one]
            try:
                await self._process(batch)
            except BaseException as error:
                for one in batch.values():
                    if not one.result.done():
                        one.result.set_exception(error)
                if not isinstance(error, Exception):
                    raise

    async def _process(self, batch: Mapping[str, _Waiting]) -> None:
        stored: dict[str, HeartbeatResult] = {}
        try:
            stored = await self._store_repeated(batch)
        except Exception as error:
            if len(batch) == 1:
                raise
            log.info("heartbeats are stored one by one: %s", error)
        for agent_id, one in batch.items():
            if agent_id not in stored:
                try:
                    stored[agent_id] = await self._store_one(one)
                except Exception as error:
                    one.result.set_exception(error)
        await self._observe([one for one in batch.values() if one.agent_id in stored])
        for agent_id, result in stored.items():
            if not batch[agent_id].result.done():
                batch[agent_id].result.set_result(result)

    async def _store_repeated(self, batch: Mapping[str, _Waiting]) -> dict[str, HeartbeatResult]:
        """Store those heartbeats that differ from the recorded ones only in facts."""
        if not self._collects_seconds():
            return {}
        now = self._monotonic()
        repeated: list[RepeatedHeartbeat] = []
        compared: set[str] = set()
        for agent_id, one in batch.items():
            recorded = self._recorded.get(agent_id)
            if recorded is None or not is_repeated(recorded.heartbeat.beat, one.beat):
                continue
            repeated.append(RepeatedHeartbeat(agent_id, one.beat, one.at, recorded.heartbeat))
            if recorded.compared_at < now - FULL_INTERVAL_SECONDS:
                compared.add(agent_id)
        if not repeated:
            return {}
        stored = await self._store.record_repeated(repeated, compared)
        for one_repeated in repeated:
            agent_id, known = one_repeated.agent_id, self._recorded[one_repeated.agent_id]
            if agent_id in stored:
                heartbeat = replace(known.heartbeat, beat=one_repeated.beat)
                compared_at = now if agent_id in compared else known.compared_at
                self._recorded[agent_id] = _Recorded(heartbeat, compared_at)
            else:
                del self._recorded[agent_id]
        return dict.fromkeys(stored, _UNCHANGED)

    async def _store_one(self, one: _Waiting) -> HeartbeatResult:
        self._recorded.pop(one.agent_id, None)
        result = await self._store.record_heartbeat(one.agent_id, one.beat, one.at)
        is_complete = result.status is AgentStatus.ALIVE and not result.refused
        if is_complete and result.recorded is not None:
            self._recorded[one.agent_id] = _Recorded(result.recorded, self._monotonic())
        return result

    async def _observe(self, stored: Sequence[_Waiting]) -> None:
        reports = {
            one.agent_id: one.kernels
            for one in stored
            if one.kernels is not None and not one.beat.is_leaving
        }
        if not reports:
            return
        try:
            await self._observer.observe(reports)
        except Exception as error:
            if len(reports) == 1:
                raise
            log.info("kernels are compared agent by agent: %s", error)
            for one in stored:
                if (kernels := reports.get(one.agent_id)) is None:
                    continue
                try:
                    await self._observer.observe({one.agent_id: kernels})
                except Exception as failed:
                    one.result.set_exception(failed)


_UNCHANGED = HeartbeatResult(False, False, AgentStatus.ALIVE, AgentStatus.ALIVE)


def is_repeated(before: AgentHeartbeat, beat: AgentHeartbeat) -> bool:
    """Return whether a heartbeat differs from the previous one only in facts.

    The facts about the sharing of a device must be the same.
    """
    if beat.settings is not None or beat.is_leaving or before.is_leaving:
        return False
    if beat.devices != before.devices and not _have_same_capacity(before.devices, beat.devices):
        return False
    return _without_facts(before) == _without_facts(beat)


def _without_facts(beat: AgentHeartbeat) -> AgentHeartbeat:
    return replace(beat, facts={}, devices=(), settings=None)


def _have_same_capacity(before: Sequence[NewDevice], devices: Sequence[NewDevice]) -> bool:
    return len(before) == len(devices) and all(
        _without_device_facts(one) == _without_device_facts(other)
        and all(one.facts.get(name, ...) == other.facts.get(name, ...) for name in SHARING_FACTS)
        for one, other in zip(before, devices, strict=True)
    )


_without_device_facts = attrgetter(
    *(field.name for field in fields(NewDevice) if field.name != "facts")
)
