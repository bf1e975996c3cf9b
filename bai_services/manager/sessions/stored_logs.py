"""Search the output of ended sessions, and remove it after some time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.logs import first_matches, without_times
from bai_services.core.sessions.records import LogHit, LogMatch, LogSearch
from bai_services.core.user_input import shown
from bai_services.db.sessions.setups import SetupStore
from bai_services.db.sessions.stored_logs import LogPosition, StoredLog, StoredLogStore

from ..accounts import authorizer
from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease
from .logs import check_search_text
from .setups import SECRETS_KEPT

TICK_SECONDS = 3600.0
# Maximum number of logs that one transaction removes.
_REMOVED_AT_ONCE = 500
# Maximum number of logs in memory: each has up to 262,144 characters.
_PAGE = 20
# Limits of one search; the caller can continue after its last log.
MAX_SEARCHED_LOGS = 500
MAX_HITS = 50
MAX_SECONDS = 2.0
# Limits of one hit.
_MAX_LINES = 5
_MAX_LINE_CHARS = 300


class StoredLogs:
    """Searches the logs of the caller's own sessions; only the holder of the lease removes logs."""

    def __init__(
        self,
        store: StoredLogStore,
        setups: SetupStore,
        lease: Lease,
        clock: Clock,
        max_days: int,
    ) -> None:
        """``max_days``: days after the end of a session until its logs are removed; 0: never."""
        self._store = store
        self._setups = setups
        self._lease = lease
        self._clock = clock
        self._max_days = max_days
        self._loop = Loop("stored logs", self._step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def search(self, caller: Caller, text: str, after: str = "") -> LogSearch:
        """Search the logs of the caller's ended sessions for a text, the newest first.

        A search is limited in logs, hits and seconds. To continue it, pass ``after`` of its result.

        Raises
        ------
        InvalidRequest
            If the text is empty or too long, or ``after`` is malformed.
        """
        authorizer.require(caller, "session.read-private")
        check_search_text(text)
        if not text.strip():
            raise InvalidRequest("enter a text to search for", field="search")
        position = _position_in(after)
        deadline = time.monotonic() + MAX_SECONDS
        hits: list[LogHit] = []
        searched = 0
        while True:
            logs = await self._store.page(caller.user_id or "", position, _PAGE)
            # Search in a thread: case folding of megabytes takes many milliseconds.
            hits += await asyncio.to_thread(_hits_in, logs, text)
            searched += len(logs)
            if len(logs) < _PAGE:
                return LogSearch(hits, searched, None)
            position = LogPosition(logs[-1].session_id, logs[-1].kernel)
            is_enough = searched >= MAX_SEARCHED_LOGS or len(hits) >= MAX_HITS
            if is_enough or time.monotonic() > deadline:
                return LogSearch(hits, searched, f"{position.session_id}/{position.kernel}")

    async def remove_old(self) -> None:
        """Remove the logs and secrets of ended sessions after their retention periods."""
        # Secrets are kept while an agent or the Hub may report output, because they mask it.
        before, count = self._clock() - SECRETS_KEPT, _REMOVED_AT_ONCE
        while count == _REMOVED_AT_ONCE:
            count = await self._setups.remove_secrets(before, _REMOVED_AT_ONCE)
        if self._max_days:
            before = self._clock() - timedelta(days=self._max_days)
            count = _REMOVED_AT_ONCE
            while count == _REMOVED_AT_ONCE:
                count = await self._store.remove(before, _REMOVED_AT_ONCE)

    async def _step(self) -> None:
        if self._lease.is_held:
            await self.remove_old()


def _hits_in(logs: Sequence[StoredLog], text: str) -> list[LogHit]:
    hits = []
    for log in logs:
        result = first_matches(without_times(log.log), text, _MAX_LINES, _MAX_LINE_CHARS)
        if result.total:
            lines = [LogMatch(number=number, text=line) for number, line in result.lines]
            hits.append(
                LogHit(
                    log.session_id, log.session, log.kernel, log.terminated_at, result.total, lines
                )
            )
    return hits


def _position_in(text: str) -> LogPosition | None:
    session_id, _, kernel = text.partition("/")
    if not text:
        return None
    if not session_id or not kernel or len(text) > 200 or "\0" in text:
        raise InvalidRequest(f"after={shown(text)!r} is not SESSION_ID/KERNEL", field="after")
    return LogPosition(session_id, kernel)
