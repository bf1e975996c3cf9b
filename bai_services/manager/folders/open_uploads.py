"""Unfinished uploads of each user: counted and limited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bai_services.core.errors import BaiError, QuotaExceeded
from bai_services.storage.transfers.staging import UploadFacts

from .storage_hosts import StorageHosts


@dataclass(frozen=True, slots=True)
class _Open:
    user_id: str
    host: str
    scope: str
    length: int
    expires_at: float


class OpenUploads:
    """Kept in memory: read from a storage host when it is first used, then followed.

    Each manager counts what it has begun and what it has found at that moment.
    """

    def __init__(
        self, hosts: StorageHosts, limit: int, now: Callable[[], float] = time.time
    ) -> None:
        self._hosts = hosts
        self._limit = limit
        self._now = now
        self._known: dict[str, _Open] = {}
        self._read: set[str] = set()
        self._reading = asyncio.Lock()

    async def read(self) -> None:
        """Find what was begun before this manager started, on each host that answers."""
        async with self._reading:
            for host in self._hosts.answering():
                if host.name in self._read:
                    continue
                try:
                    found = await host.unfinished()
                except BaiError:
                    continue  # it went away: read at the next upload
                for scope, facts in found:
                    self._known.setdefault(facts.id, _open(host.name, str(scope), facts))
                self._read.add(host.name)

    def begin(self, host: str, scope: str, facts: UploadFacts) -> None:
        """Count an upload that is about to begin; nothing is awaited between check and count.

        Raises
        ------
        QuotaExceeded
            If the user has as many unfinished uploads as one may have.
        """
        now = self._now()
        for key in [key for key, known in self._known.items() if known.expires_at < now]:
            del self._known[key]
        own = [known for known in self._known.values() if known.user_id == facts.user_id]
        if len(own) >= self._limit:
            minutes = (min(known.expires_at for known in own) - now) / 60
            raise QuotaExceeded(
                f"one user may have {self._limit} unfinished uploads, you have {len(own)}; finish "
                f"or delete some, or wait: the first of them expires in {minutes:.0f} minutes",
                limit=self._limit,
                used=len(own),
            )
        self._known[facts.id] = _open(host, scope, facts)

    def announced_bytes(self, host: str, scope: str) -> int:
        """Return how many bytes the unfinished uploads into a quota scope will have."""
        now = self._now()
        return sum(
            known.length
            for known in self._known.values()
            if (known.host, known.scope) == (host, scope) and known.expires_at >= now
        )

    def ended(self, upload_id: str) -> None:
        """Stop counting an upload; one that is not known is fine."""
        self._known.pop(upload_id, None)


def _open(host: str, scope: str, facts: UploadFacts) -> _Open:
    return _Open(facts.user_id, host, scope, facts.length, facts.expires_at)
