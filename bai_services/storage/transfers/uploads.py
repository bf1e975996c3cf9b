"""Asynchronous access to the resumable uploads of one folder's scope."""

from __future__ import annotations

from collections.abc import Sequence

from ..workers import Workers
from .staging import Staging, UploadFacts, Writer


class ResumableUploads:
    """Runs the operations of a staging area in threads; errors are those of ``Staging``."""

    def __init__(self, staging: Staging, workers: Workers, long: Workers) -> None:
        """``long`` runs the operations that may take longer than one step."""
        self._staging = staging
        self._workers = workers
        self._long = long

    async def begin(self, facts: UploadFacts) -> None:
        """Create an upload durably, before the request is acknowledged."""
        await self._workers.run(self._staging.begin, facts)

    async def recover(self, upload_id: str) -> UploadFacts:
        """Return the state of an upload without a writer; unverified bytes are removed."""
        return await self._workers.run(self._staging.recover, upload_id)

    async def writer(self, upload_id: str, checksum: tuple[str, bytes] | None = None) -> Writer:
        """Return a writer that appends a chunk to an upload.

        ``checksum`` is the algorithm and the digest of the chunk.
        """
        return await self._workers.run(self._staging.writer, upload_id, checksum)

    async def join(self, facts: UploadFacts, parts: Sequence[str]) -> None:
        """Create an upload by concatenating the complete uploads with these ids, in their order."""
        await self._long.run(self._staging.join, facts, parts, seconds=None)

    async def finish(self, facts: UploadFacts) -> None:
        """Mark an upload as complete. Its state is kept for clients that missed the response."""
        await self._workers.run(self._staging.finish, facts)

    async def remove(self, upload_id: str) -> None:
        """Remove an upload with its bytes; idempotent."""
        await self._workers.run(self._staging.remove, upload_id)
