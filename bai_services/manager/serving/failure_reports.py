"""Check replicas that gateways have reported as failed.

The manager checks such a replica itself before it removes the replica from the routing table. A
gateway that cannot reach a replica stops using it at once, but must not remove it for the other
gateways. If only the connection of that gateway is broken, the next check of the manager would
restore the replica, and its state would change repeatedly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from bai_services.core.coded_text import TextTemplate
from bai_services.core.serving.settings import RevisionSettings
from bai_services.db.serving.replicas import ReplicaStore

from ..clock import Clock
from .probes import HealthProbes, Probed
from .replica_launch import ReplicaSecrets

# One failed check may be due to a short interruption.
REPEATS = 1


class FailureReports:
    """Determines whether reported replicas are unhealthy."""

    def __init__(
        self,
        store: ReplicaStore,
        secrets: ReplicaSecrets,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is called when a replica has become unhealthy."""
        self._store = store
        self._clock = clock
        self._changed = changed
        self._probes = HealthProbes(secrets, self._passed, self._failed)

    async def check(self, ids: Collection[str]) -> None:
        """Start a check of each reported replica that serves."""
        for replica in await self._store.serving(ids):
            settings = RevisionSettings.from_json(replica.settings)
            self._probes.begin(
                replica, replica.owner_id, settings.health, REPEATS, settings.protocol
            )

    async def close(self) -> None:
        await self._probes.close()

    async def _passed(self, replica: Probed) -> None:
        """Do nothing: the replica is healthy, so gateways that can reach it keep using it."""

    async def _failed(self, replica: Probed) -> None:
        text = TextTemplate.REPLICA_UNHEALTHY.text().as_json()
        await self._store.require_health_check([replica.id], self._clock(), text)
        self._changed()
