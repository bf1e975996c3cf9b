"""Count and limit the unfinished uploads of each user."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bai_services.core.counts import counted
from bai_services.core.errors import BaiError, QuotaExceeded
from bai_services.storage.transfers.staging import UploadFacts

from .storage_hosts import StorageHosts


@dataclass(slots=True)
class _OpenUpload:
    user_id: str
    host: str
    scope: str
    length: int
    expires_at: float


class OpenUploads:
    """Counts unfinished uploads in memory.

    Each manager counts the uploads that it starts. When it first uses a storage host, it also loads
    the unfinished uploads that are stored there.
    """

    def __init__(
        self, hosts: StorageHosts, limit: int, now: Callable[[], float] = time.time
    ) -> None:
        self._hosts = hosts
        self._limit = limit
        self._now = now
        self._known: dict[str, _OpenUpload] = {}
        self._read_hosts: set[str] = set()
        # One lock per host: a host that does not respond must not delay uploads to other hosts.
        self._read_locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self) -> None:
        """Load the stored unfinished uploads of each available host, once per host."""
        for host in self._hosts.available():
            await self.read_host(host.name)

    async def read_host(self, name: str) -> None:
        """Load the stored unfinished uploads of a host, once."""
        async with self._read_locks[name]:
            if name in self._read_hosts:
                return
            try:
                uploads = await self._hosts.get(name).unfinished()
            except BaiError:
                return  # retried at the next upload
            for scope, facts in uploads:
                self._known.setdefault(facts.id, _open(name, str(scope), facts))
            self._read_hosts.add(name)

    def begin(self, host: str, scope: str, facts: UploadFacts) -> None:
        """Count a new upload. The method never awaits, so parallel calls cannot exceed the limit.

        Raises
        ------
        QuotaExceeded
            If the user has reached the maximum number of unfinished uploads.
        """
        now = self._now()
        for key in [key for key, known in self._known.items() if known.expires_at < now]:
            del self._known[key]
        own = [known for known in self._known.values() if known.user_id == facts.user_id]
        if len(own) >= self._limit:
            minutes = (min(known.expires_at for known in own) - now) / 60
            raise QuotaExceeded(
                f"you have {counted(len(own), 'unfinished uploads')}; the limit is "
                f"{self._limit}. Finish or delete some, or wait: the first one expires in "
                f"{counted(round(minutes), 'minutes')}",
                limit=self._limit,
                used=len(own),
            )
        self._known[facts.id] = _open(host, scope, facts)

    def announced_bytes(self, host: str, scope: str, without: Collection[str] = ()) -> int:
        """Return the total announced size of the unfinished uploads into a quota scope.

        ``without`` are the ids of uploads that are not counted.
        """
        now = self._now()
        return sum(
            known.length
            for key, known in self._known.items()
            if (known.host, known.scope) == (host, scope)
            and known.expires_at >= now
            and key not in without
        )

    def extend(self, upload_id: str, expires_at: float) -> None:
        """Set the later expiry of an upload that receives data; unknown ids are ignored."""
        if (known := self._known.get(upload_id)) is not None:
            known.expires_at = expires_at

    def end(self, upload_id: str) -> None:
        """Stop counting an upload; unknown ids are ignored."""
        self._known.pop(upload_id, None)


def _open(host: str, scope: str, facts: UploadFacts) -> _OpenUpload:
    return _OpenUpload(facts.user_id, host, scope, facts.length, facts.expires_at)
