"""Call webhooks: one call at a time for each webhook, with retries."""

from __future__ import annotations

import asyncio
import logging
from zoneinfo import ZoneInfo

from bai_services.core.coded_text import CodedText
from bai_services.core.errors import Unavailable
from bai_services.core.notifications.webhooks import Message, WebhookKind, payload
from bai_services.core.sessions import callbacks
from bai_services.db.notifications.webhooks import DueDelivery, WebhookStore, WebhookTarget
from bai_services.db.open_work import Work

from ..accounts.keypair_secrets import KeypairSecrets
from ..clock import Clock
from ..scheduling.lease import Lease
from ..sessions.callback_calls import CallbackCalls, CallFailed
from .texts import Links, text_of, title_of

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
MAX_CONCURRENT_CALLS = 8
# Maximum number of webhooks with due deliveries that a step considers.
MAX_CANDIDATES = 500


class WebhookCalls:
    """Signs and posts a message to a webhook, with the restrictions of callbacks."""

    def __init__(self, calls: CallbackCalls, encryption: KeypairSecrets, clock: Clock) -> None:
        self._calls = calls
        self._secrets = encryption
        self._clock = clock

    async def close(self) -> None:
        await self._calls.close()

    async def post(self, target: WebhookTarget, delivery_id: str, message: Message) -> None:
        """Post a message; raise ``CallFailed`` unless the endpoint has accepted it."""
        try:
            url = self._secrets.decrypt(target.url_encrypted)
            secret = self._secrets.decrypt(target.secret_encrypted)
        except Unavailable as error:
            raise CallFailed("the URL of the webhook cannot be decrypted") from error
        body = payload(WebhookKind(target.kind), delivery_id, message)
        timestamp = int(self._clock().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "bai-hub",
            callbacks.DELIVERY_HEADER: delivery_id,
            callbacks.TIMESTAMP_HEADER: str(timestamp),
            callbacks.SIGNATURE_HEADER: callbacks.signature(secret, timestamp, body),
        }
        await self._calls.post(url, body, headers)


class WebhookDeliveries:
    """A loop that starts due deliveries as tasks; only the holder of the lease delivers.

    A delivery remains pending until its result is stored. If the manager is killed before that, the
    call is repeated with the same delivery id.
    """

    def __init__(
        self,
        store: WebhookStore,
        calls: WebhookCalls,
        links: Links,
        clock: Clock,
        lease: Lease,
    ) -> None:
        self._store = store
        self._calls = calls
        self._links = links
        self._clock = clock
        self._lease = lease
        self._busy: set[str] = set()  # ids of webhooks
        # Sequence number of the last call of each webhook with due deliveries, by id.
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = lease.loop("webhooks", self.step, TICK_SECONDS, Work.WEBHOOKS)

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
        self._loop.wake()

    async def step(self) -> None:
        """Start the deliveries that are due.

        The webhooks take turns, so that many deliveries to slow endpoints do not delay others.
        """
        free = MAX_CONCURRENT_CALLS - len(self._busy)
        if free <= 0 or await self._lease.hold() is None:
            return
        due = await self._store.due(self._clock(), self._busy, MAX_CANDIDATES)
        waiting = {delivery.target.id for delivery in due} | self._busy
        self._turns = {key: turn for key, turn in self._turns.items() if key in waiting}
        for delivery in sorted(due, key=lambda each: self._turns.get(each.target.id, 0))[:free]:
            self._turn += 1
            self._turns[delivery.target.id] = self._turn
            self._busy.add(delivery.target.id)
            task = asyncio.create_task(self._deliver(delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait for the calls in progress."""
        await asyncio.gather(*self._tasks)

    async def _deliver(self, delivery: DueDelivery) -> None:
        try:
            try:
                await self._calls.post(delivery.target, delivery.id, self._message(delivery))
            except CallFailed as error:
                await self._store.mark_failed(
                    delivery, str(error), self._clock(), is_final=error.is_final
                )
                log.info("webhook %s: %s", delivery.target.id, error)
            else:
                await self._store.mark_delivered(delivery, self._clock())
        except Unavailable as error:
            log.error("result of webhook %s could not be stored: %s", delivery.target.id, error)
        except Exception:
            # Count this error like other failures, so that later deliveries are not blocked.
            log.exception("webhook %s", delivery.target.id)
            text = "internal error; see the log of the manager"
            await self._store.mark_failed(delivery, text, self._clock(), is_final=False)
        finally:
            self._busy.discard(delivery.target.id)
        self.wake()

    def _message(self, delivery: DueDelivery) -> Message:
        target = delivery.target
        zone = ZoneInfo("UTC") if target.settings is None else target.settings.zone
        return Message(
            event=delivery.event,
            event_id=delivery.event_id,
            at=delivery.event_at,
            title=title_of(delivery.event, target.language),
            text=text_of(CodedText.from_json(delivery.text), target.language, zone),
            link=self._links.url(delivery.link),
            coded=dict(delivery.text),
            domain=delivery.domain,
            user=delivery.user,
        )
