"""Compute placement tables from the recent requests of each resource group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from bai_services.core.scheduling.placement import AgentState, Request, Tables, build_tables
from bai_services.core.scheduling.queue import GroupState
from bai_services.db.scheduling.queue import QueueStore

from ..loop import Loop
from .lease import Lease

TICK_SECONDS = 600.0
# Maximum number of recent requests from which the tables of a group are computed.
MAX_RECENT_REQUESTS = 2_000


class PlacementTraining:
    """Computes placement tables in a thread, one resource group at a time.

    New tables take effect at the scheduler's next full (non-incremental) read of the database.
    Until a group has computed tables, the scheduler uses default tables for its agents.
    """

    def __init__(self, store: QueueStore, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._tables: dict[str, Tables] = {}
        self._inputs: dict[str, tuple[list[Request], list[AgentState]]] = {}
        self._loop = Loop("placement training", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Compute the tables of the groups whose requests or agents have changed."""
        if await self._lease.hold() is None:
            return
        names = await self._store.learning_groups()
        for name in self._tables.keys() - set(names):
            del self._tables[name], self._inputs[name]
        for name in names:
            recent, seconds, agents = await self._store.recent(name, MAX_RECENT_REQUESTS)
            inputs = (recent, [agent.fully_available() for agent in agents])
            if not recent or self._inputs.get(name) == inputs:
                continue
            self._tables[name] = await asyncio.to_thread(build_tables, recent, agents, seconds)
            self._inputs[name] = inputs

    def with_tables(self, groups: Mapping[str, GroupState]) -> dict[str, GroupState]:
        """Return the resource groups with their computed tables, if any."""
        return {
            name: replace(group, tables=self._tables.get(name)) for name, group in groups.items()
        }
