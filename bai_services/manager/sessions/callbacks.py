"""Delivery of session callbacks: every status change, in order, independent of the rest."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from bai_services.core.errors import Unavailable
from bai_services.core.sessions import callbacks
from bai_services.core.sessions.lifecycle import ENDED
from bai_services.db.sessions.callbacks import CallbackDelivery, CallbackStore
from bai_services.db.sessions.rows import SessionRow

from ..accounts.keypair_secrets import KeypairSecrets
from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease
from .callback_calls import CallbackCalls, CallFailed
from .lifecycle import Lifecycle

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
# Limits on concurrent calls: in total, and per owner, whose receivers may be slow.
AT_ONCE = 16
PER_OWNER = 2


class Callbacks:
    """A loop that starts calls and does not wait for their answers.

    The status changes to send are read from the status history, and the position reached is stored
    beside it, so a restarted manager continues where the last one stopped. Each change is sent at
    least once, and before the next one of the same session.
    """

    def __init__(
        self,
        store: CallbackStore,
        calls: CallbackCalls,
        secrets: KeypairSecrets,
        lifecycle: Lifecycle,
        clock: Clock,
        *,
        lease: Lease,
    ) -> None:
        self._store = store
        self._calls = calls
        self._secrets = secrets
        self._clock = clock
        self._lease = lease
        self._loop = Loop("callbacks", self.step, TICK_SECONDS)
        self._owners: dict[str, str] = {}  # session id -> owner, of calls in progress
        self._tasks: set[asyncio.Task[None]] = set()
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        """Stop; calls in progress are cancelled and repeated by the next manager."""
        await self._loop.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.close()

    def wake(self) -> None:
        """Check now for due callbacks; cheap."""
        self._loop.wake()

    async def step(self) -> None:
        """Start the calls that are due; only one such step runs at a time."""
        if len(self._owners) >= AT_ONCE or await self._lease.hold() is None:
            return
        counts = Counter(self._owners.values())
        full = [owner for owner, count in counts.items() if count >= PER_OWNER]
        for letter in await self._store.due(self._clock(), self._owners, full, PER_OWNER):
            if len(self._owners) >= AT_ONCE:
                return
            if counts[letter.owner_id] < PER_OWNER:
                counts[letter.owner_id] += 1
                self._begin(letter)

    def _begin(self, letter: CallbackDelivery) -> None:
        self._owners[letter.session_id] = letter.owner_id
        task = asyncio.create_task(self._deliver(letter))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, letter: CallbackDelivery) -> None:
        try:
            await self._try(letter)
        except Unavailable as error:
            log.error("callback result of %s could not be stored: %s", letter.session_id, error)
        else:
            self.wake()
        finally:
            del self._owners[letter.session_id]

    async def _try(self, letter: CallbackDelivery) -> None:
        try:
            await self._call(letter)
        except CallFailed as error:
            await self._fail(letter, error)
        else:
            await self._store.mark_delivered(letter, self._clock())

    async def _call(self, letter: CallbackDelivery) -> None:
        if letter.secret_key_encrypted is None:
            raise CallFailed("its keypair no longer exists, so it cannot be signed", is_final=True)
        try:
            secret = callbacks.secret_of(self._secrets.decrypt(letter.secret_key_encrypted))
        except Unavailable as error:
            raise CallFailed("its keypair cannot be read, so it cannot be signed") from error
        body = callbacks.body_of(_change(letter))
        timestamp = int(self._clock().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "bai-hub",
            callbacks.DELIVERY_HEADER: str(letter.id),
            callbacks.TIMESTAMP_HEADER: str(timestamp),
            callbacks.SIGNATURE_HEADER: callbacks.signature(secret, timestamp, body),
        }
        await self._calls.post(letter.url, body, headers)

    async def _fail(self, letter: CallbackDelivery, error: CallFailed) -> None:
        wait = None if error.is_final else callbacks.retry_delay(letter.tries + 1)
        now = self._clock()
        if wait is None:
            log.info("callback of %s (%s) given up: %s", letter.session_id, letter.to_status, error)
            await self._store.mark_skipped(letter, now, str(error))
            return
        await self._store.mark_failed(letter, now + wait, str(error))
        asyncio.get_running_loop().call_later(wait.total_seconds(), self.wake)

    def _on_change(self, row: SessionRow) -> None:
        if row.callback_url is not None:
            self.wake()


def _change(letter: CallbackDelivery) -> dict[str, object]:
    is_ended = letter.to_status in ENDED
    return {
        "delivery": letter.id,
        "session_id": letter.session_id,
        "name": letter.name,
        "owner": letter.owner,
        "from_status": letter.from_status,
        "status": letter.to_status,
        "reason": letter.reason,
        "at": letter.at.isoformat(),
        "result": letter.result if is_ended else "undefined",
        "exit_code": letter.exit_code if is_ended else None,
    }
