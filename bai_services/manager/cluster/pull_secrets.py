"""User names and passwords that agents need to pull images."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from bai_services.core.cluster.registries import registry_host
from bai_services.core.errors import Unavailable
from bai_services.db.cluster.registries import PullSecret, RegistryStore
from bai_services.db.database import Database

from ..accounts.keypair_secrets import KeypairSecrets

log = logging.getLogger(__name__)

# Secrets are read again after this time, because another manager may change a password.
CACHE_TTL_SECONDS = 5.0


class PullSecrets:
    """Adds the credentials of an image's registry to work items of agents.

    Agents pass them to the engine only. They are neither stored nor part of a session.
    """

    def __init__(self, database: Database, cipher: KeypairSecrets) -> None:
        self._store = RegistryStore(database)
        self._cipher = cipher
        # Monotonic time of the last read, and the secrets by host.
        self._cached: tuple[float, Mapping[str, PullSecret]] | None = None

    async def of_image(self, image: str) -> dict[str, dict[str, str]]:
        """Return the field ``registry_auth`` of a work item; {} without credentials."""
        if not image:
            return {}
        if self._cached is None or time.monotonic() - self._cached[0] > CACHE_TTL_SECONDS:
            found = {secret.host: secret for secret in await self._store.secrets()}
            self._cached = time.monotonic(), found
        secret = self._cached[1].get(registry_host(image))
        if secret is None:
            return {}
        try:
            password = self._cipher.decrypt(secret.password_encrypted)
        except Unavailable as error:
            # The agent must still receive its other work. This pull will fail with the registry's
            # error message.
            log.error("the password of registry %s cannot be read: %s", secret.host, error)
            return {}
        return {"registry_auth": {"username": secret.username, "password": password}}

    def changed(self) -> None:
        """Read the secrets again at the next use."""
        self._cached = None
