"""Webhooks: payloads, retries, and the suspension of endpoints that do not respond."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

MAX_OWN_WEBHOOKS = 5
MAX_WEBHOOKS = 200
MAX_NAME_CHARS = 64
# Maximum number of pending deliveries of a webhook; further deliveries are dropped.
MAX_PENDING_DELIVERIES = 1000
# Number of consecutive failed attempts after which an endpoint is suspended, if the first of them
# was at least ``SUSPENDED_AFTER`` ago.
SUSPENDED_AFTER_FAILURES = 10
SUSPENDED_AFTER = timedelta(hours=1)
# Time after which a delivery is no longer attempted.
DELIVERY_LIFETIME = timedelta(days=1)
FIRST_RETRY = timedelta(seconds=10)
MAX_RETRY = timedelta(minutes=30)
# Time for which finished deliveries remain in the log.
LOG_KEPT_FOR = timedelta(days=7)

TEST_EVENT = "test"


class WebhookKind(StrEnum):
    """The payload format of a webhook: of bai-hub, or of Slack and compatible services."""

    JSON = "json"
    SLACK = "slack"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given-up"


@dataclass(frozen=True, slots=True)
class Message:
    """An event in the language and time zone of the receiver; ``link`` is a URL, or empty."""

    event: str
    event_id: str
    at: datetime
    title: str
    text: str
    link: str
    coded: dict[str, Any] | None
    domain: str | None
    user: str | None


def payload(kind: WebhookKind, delivery_id: str, message: Message) -> bytes:
    """Return the body of a request: compact JSON with sorted keys."""
    content = _slack(message) if kind is WebhookKind.SLACK else _json(delivery_id, message)
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def retry_at(created_at: datetime, attempts: int, now: datetime) -> datetime | None:
    """Return the time of the next attempt after ``attempts`` failures; None to give up."""
    delay = min(FIRST_RETRY * (1 << min(attempts - 1, 10)), MAX_RETRY)
    return None if now + delay - created_at > DELIVERY_LIFETIME else now + delay


def is_to_suspend(failures: int, failing_since: datetime, now: datetime) -> bool:
    """Return whether to suspend an endpoint after ``failures`` consecutive failed attempts."""
    return failures >= SUSPENDED_AFTER_FAILURES and now - failing_since >= SUSPENDED_AFTER


def _json(delivery_id: str, message: Message) -> dict[str, Any]:
    return {
        "delivery": delivery_id,
        "event": message.event,
        "event_id": message.event_id,
        "at": message.at.isoformat(),
        "title": message.title,
        "text": message.text,
        "link": message.link,
        "coded": message.coded,
        "domain": message.domain,
        "user": message.user,
    }


def _slack(message: Message) -> dict[str, Any]:
    text = f"*{_escaped(message.title)}*\n{_escaped(message.text)}"
    return {"text": f"{text}\n<{message.link}>" if message.link else text}


def _escaped(text: str) -> str:
    """Escape text, so that Slack finds no link, mention or channel such as ``<!everyone>``."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
