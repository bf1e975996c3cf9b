"""Launch of replicas: variables of their runner, the secret of the gateways, their address."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from bai_services.core.serving.settings import RevisionSettings
from bai_services.core.serving.variants import (
    METRICS_PORT_VARIABLE,
    MODEL_VARIABLE,
    PORT_VARIABLE,
    VARIANTS,
)
from bai_services.db.serving.replicas import ReplicaStore
from bai_services.db.serving.trials import TrialStore

from ..clock import Clock

SECRET_VARIABLE = "BAI_REPLICA_SECRET"


class ReplicaSecrets:
    """The secrets that authenticate gateways to replicas.

    A secret is computed from the manager's key and the id of the revision, so it is not stored. All
    replicas of a revision have the same secret, because HAProxy cannot send a different secret to
    each replica.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, revision_id: str) -> str:
        return hmac.new(self._key, f"replica:{revision_id}".encode(), hashlib.sha256).hexdigest()


class ReplicaLaunches:
    """Implements the interface in ``manager/sessions/replica_launch.py``."""

    def __init__(
        self,
        store: ReplicaStore,
        trials: TrialStore,
        secrets: ReplicaSecrets,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` is called when a replica has an address."""
        self._store = store
        self._trials = trials
        self._secrets = secrets
        self._clock = clock
        self._wake = wake

    async def environ(self, session_id: str) -> Mapping[str, str]:
        """Return the environment variables for the runner of a replica."""
        found = await self._store.revision_of(session_id)
        if found is None:
            found = await self._trials.revision_of(session_id)
        if found is None:
            # The endpoint was deleted, so the session is being stopped.
            return {}
        revision_id, stored = found
        settings = RevisionSettings.from_json(stored)
        environ = {
            SECRET_VARIABLE: self._secrets.of(revision_id),
            PORT_VARIABLE: str(settings.port),
        }
        runtime = VARIANTS.get(settings.variant)
        if runtime is not None and runtime.metrics_port:
            environ[METRICS_PORT_VARIABLE] = str(runtime.metrics_port)
        if settings.model_variable:
            environ[MODEL_VARIABLE] = settings.model_variable
        return environ

    async def started(self, session_id: str, url: str) -> None:
        """Record the URL at which the runner of a replica listens."""
        await self._store.set_url(session_id, url, self._clock())
        await self._trials.set_url(session_id, url)
        self._wake()
