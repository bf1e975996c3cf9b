"""Asynchronous access to the resumable uploads of one quota scope."""

from __future__ import annotations

from collections.abc import Sequence

from ..workers import Workers
from .staging import Staging, UploadFacts, Writer


class ResumableUploads:
    """Runs the operations of ``Staging`` in threads, and raises the same errors."""

    def __init__(self, staging: Staging, workers: Workers, long: Workers) -> None:
        """``long`` runs the operations that have no time limit."""
        self._staging = staging
        self._workers = workers
        self._long = long

    async def begin(self, facts: UploadFacts) -> None:
        """Create an upload durably, before the request is acknowledged."""
        await self._workers.run(self._staging.begin, facts)

    async def recover(self, upload_id: str) -> UploadFacts:
        """Remove the unverified bytes of an upload that has no writer, and return its state."""
        return await self._workers.run(self._staging.recover, upload_id)

    async def writer(self, upload_id: str, checksum: tuple[str, bytes] | None = None) -> Writer:
        """Return a writer that appends a chunk to an upload.

        ``checksum`` is the algorithm and the digest of the chunk.
        """
        return await self._workers.run(self._staging.writer, upload_id, checksum)

    async def join(self, facts: UploadFacts, parts: Sequence[str]) -> None:
        """Create an upload by concatenating complete uploads in the order of the ids ``parts``."""
        await self._long.run(self._staging.join, facts, parts, seconds=None)

    async def finish(self, facts: UploadFacts) -> None:
        """Mark an upload as complete. Its state is kept for clients that missed the response."""
        await self._workers.run(self._staging.finish, facts)

    async def remove(self, upload_id: str) -> None:
        """Remove an upload with its bytes; idempotent."""
        await self._workers.run(self._staging.remove, upload_id)
