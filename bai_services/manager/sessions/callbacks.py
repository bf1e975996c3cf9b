"""Deliver status changes as callbacks: in order per session, concurrently across sessions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from bai_services.core.errors import Unavailable
from bai_services.core.sessions import callbacks
from bai_services.core.sessions.lifecycle import ENDED
from bai_services.db.open_work import Work
from bai_services.db.sessions.callbacks import CallbackDelivery, CallbackStore
from bai_services.db.sessions.rows import SessionRow

from ..accounts.keypair_secrets import KeypairSecrets
from ..clock import Clock
from ..scheduling.lease import Lease
from .callback_calls import CallbackCalls, CallFailed
from .lifecycle import Lifecycle

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
# Limits on concurrent calls; the limit per owner keeps slow receivers from delaying other owners.
MAX_CONCURRENT_CALLS = 16
MAX_CALLS_PER_OWNER = 2


class Callbacks:
    """A loop that starts due deliveries as tasks.

    It reads the changes from the status history and stores the last delivered change of each
    session, so a restarted manager continues after that change. The changes of a session are
    delivered in order. A change may be delivered more than once, and is skipped after its last
    failed attempt.
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
        self._loop = lease.loop("callbacks", self.step, TICK_SECONDS, Work.CALLBACKS)
        self._owners: dict[str, str] = {}  # session id -> owner, of calls in progress
        self._tasks: set[asyncio.Task[None]] = set()
        lifecycle.listen(self._on_change)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        """Stop; calls in progress are cancelled, and the next manager process repeats them."""
        await self._loop.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.close()

    def wake(self) -> None:
        """Check now for due callbacks."""
        self._loop.wake()

    async def step(self) -> None:
        """Start the deliveries that are due."""
        if len(self._owners) >= MAX_CONCURRENT_CALLS or await self._lease.hold() is None:
            return
        counts = Counter(self._owners.values())
        full = [owner for owner, count in counts.items() if count >= MAX_CALLS_PER_OWNER]
        for delivery in await self._store.due(
            self._clock(), self._owners, full, MAX_CALLS_PER_OWNER
        ):
            if len(self._owners) >= MAX_CONCURRENT_CALLS:
                return
            if counts[delivery.owner_id] < MAX_CALLS_PER_OWNER:
                counts[delivery.owner_id] += 1
                self._start_delivery(delivery)

    def _start_delivery(self, delivery: CallbackDelivery) -> None:
        self._owners[delivery.session_id] = delivery.owner_id
        task = asyncio.create_task(self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: CallbackDelivery) -> None:
        try:
            try:
                await self._send(delivery)
            except CallFailed as error:
                await self._record_failure(delivery, error)
            else:
                await self._store.mark_delivered(delivery, self._clock())
        except Unavailable as error:
            log.error("callback result of %s could not be stored: %s", delivery.session_id, error)
        else:
            self.wake()
        finally:
            del self._owners[delivery.session_id]

    async def _send(self, delivery: CallbackDelivery) -> None:
        """Sign and post one status change; raises only ``CallFailed``."""
        if delivery.secret_key_encrypted is None:
            raise CallFailed(
                "the session's keypair no longer exists, so the callback cannot be signed",
                is_final=True,
            )
        try:
            secret = callbacks.secret_of(self._secrets.decrypt(delivery.secret_key_encrypted))
        except Unavailable as error:
            raise CallFailed(
                "the session's keypair cannot be decrypted, so the callback cannot be signed"
            ) from error
        body = callbacks.body_of(_change(delivery))
        timestamp = int(self._clock().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "bai-hub",
            callbacks.DELIVERY_HEADER: str(delivery.id),
            callbacks.TIMESTAMP_HEADER: str(timestamp),
            callbacks.SIGNATURE_HEADER: callbacks.signature(secret, timestamp, body),
        }
        await self._calls.post(delivery.url, body, headers)

    async def _record_failure(self, delivery: CallbackDelivery, error: CallFailed) -> None:
        backoff = None if error.is_final else callbacks.retry_delay(delivery.tries + 1)
        now = self._clock()
        if backoff is None:
            log.info(
                "callback of %s (%s) given up: %s", delivery.session_id, delivery.to_status, error
            )
            await self._store.mark_skipped(delivery, now, str(error))
            return
        await self._store.mark_failed(delivery, now + backoff, str(error))
        asyncio.get_running_loop().call_later(backoff.total_seconds(), self.wake)

    def _on_change(self, row: SessionRow) -> None:
        if row.callback_url is not None:
            self.wake()


def _change(delivery: CallbackDelivery) -> dict[str, object]:
    is_ended = delivery.to_status in ENDED
    return {
        "delivery": delivery.id,
        "session_id": delivery.session_id,
        "name": delivery.name,
        "owner": delivery.owner,
        "from_status": delivery.from_status,
        "status": delivery.to_status,
        "reason": delivery.reason,
        "at": delivery.at.isoformat(),
        "result": delivery.result if is_ended else "undefined",
        "exit_code": delivery.exit_code if is_ended else None,
    }
