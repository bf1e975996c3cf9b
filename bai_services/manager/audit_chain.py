"""Chain the entries of the audit log, verify the chain, and remove old entries."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit_chain import (
    GENESIS,
    ChainProblem,
    Damage,
    check,
    check_end,
    link,
)
from bai_services.core.errors import Conflict
from bai_services.db.audit_chain import AuditChainStore, ChainChanged
from bai_services.db.database import Database

from .accounts import authorizer
from .clock import Clock
from .loop import Loop
from .scheduling.lease import Lease

log = logging.getLogger(__name__)

TICK_SECONDS = 10.0
# Maximum number of entries in one transaction.
BATCH = 500
# Maximum number of entries that one request verifies.
MAX_VERIFIED = 20_000


@dataclass(frozen=True, slots=True)
class ChainVerification:
    """Result of the verification of a part of the chain.

    ``position`` and ``hash`` belong to the entry from which the next verification can continue.
    ``is_complete``: the end of the chain was reached. ``unchained`` is the number of new entries
    that are not in the chain yet. ``anchor_position`` and ``anchor_hash`` belong to the last entry
    that was removed because of its age; 0 if none was removed.
    """

    checked: int
    position: int
    hash: str
    is_complete: bool
    unchained: int
    problem: ChainProblem | None
    anchor_position: int
    anchor_hash: str


class AuditChain:
    """Maintains the chain while this manager holds the lease.

    Each change is committed only if no other manager has changed the chain since it was read.
    """

    def __init__(self, database: Database, clock: Clock, lease: Lease, max_days: int) -> None:
        self._store = AuditChainStore(database)
        self._clock = clock
        self._lease = lease
        self._max_days = max_days
        self._loop = Loop("audit chain", self._step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def run(self) -> None:
        """Chain all committed entries, and remove those older than ``max_days`` (0: keep all)."""
        try:
            while await self._append():
                pass
            if self._max_days:
                before = self._clock() - timedelta(days=self._max_days)
                while await self._store.expire(before, BATCH):
                    pass
        except ChainChanged:
            log.info("another manager has extended the audit chain")

    async def verify(self, caller: Caller, after: int = 0) -> ChainVerification:
        """Verify the chain after a position that an earlier call has verified.

        Raises
        ------
        Conflict
            If there is no entry at ``after``, for example because it was removed.
        """
        authorizer.require(caller, "audit.verify")
        state, stray, unchained = await self._store.outside()
        position, previous = state.anchor_position, state.anchor_hash
        if after > position:
            position, previous = after, await self._hash_at(after)
        checked = 0
        problem = None
        is_complete = False
        while problem is None and not is_complete and checked < MAX_VERIFIED:
            state, entries = await self._store.after(position, BATCH)
            if state.anchor_position > position:  # the retention has removed this part
                position, previous = state.anchor_position, state.anchor_hash
                continue
            entries = [e for e in entries if (e.position or 0) <= state.head_position]
            # Thousands of hashes would block the event loop.
            problem = await asyncio.to_thread(check, position, previous, entries)
            if problem is None and entries:
                last = entries[-1]
                position, previous = last.position or 0, last.hash or GENESIS
                checked += len(entries)
            is_complete = len(entries) < BATCH
            if problem is None and is_complete:
                problem = check_end(state, position, previous)
        if problem is None and stray is not None:
            problem = ChainProblem(
                Damage.INSERTED,
                stray.position or 0,
                stray.id,
                f"entry {stray.id} is outside the chain: its position {stray.position} is not "
                "between the first and the last position",
            )
        return ChainVerification(
            checked,
            position,
            previous,
            is_complete,
            unchained,
            problem,
            state.anchor_position,
            state.anchor_hash,
        )

    async def _append(self) -> bool:
        """Chain one batch; return whether there may be more entries."""
        state, entries = await self._store.unchained(BATCH)
        if entries:
            links = await asyncio.to_thread(link, state, entries)
            await self._store.append(state, links)
        return len(entries) == BATCH

    async def _hash_at(self, position: int) -> str:
        entry = await self._store.at(position)
        if entry is None or entry.hash is None:
            raise Conflict(
                f"the audit log has no entry at position {position}; verify it from the beginning"
            )
        return entry.hash

    async def _step(self) -> None:
        if self._lease.is_held:
            await self.run()
