"""Payloads, retries and suspension of webhooks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from bai_services.core.notifications.webhooks import (
    DELIVERY_LIFETIME,
    Message,
    WebhookKind,
    is_to_suspend,
    payload,
    retry_at,
)

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
MESSAGE = Message(
    "announcement",
    "e1",
    NOW,
    "Announcement",
    "<!everyone> a & b",
    "https://hub.example.org/x",
    None,
    "default",
    "ann",
)


def test_mentions_and_links_are_escaped_in_a_slack_text() -> None:
    assert json.loads(payload(WebhookKind.SLACK, "d1", MESSAGE)) == {
        "text": "*Announcement*\n&lt;!everyone&gt; a &amp; b\n<https://hub.example.org/x>"
    }


def test_json_payload_contains_the_event() -> None:
    assert json.loads(payload(WebhookKind.JSON, "d1", MESSAGE)) == {
        "delivery": "d1",
        "event": "announcement",
        "event_id": "e1",
        "at": "2026-11-26T12:00:00+00:00",
        "title": "Announcement",
        "text": "<!everyone> a & b",
        "link": "https://hub.example.org/x",
        "coded": None,
        "domain": "default",
        "user": "ann",
    }


def test_retries_end_after_a_day() -> None:
    now, attempts = NOW, 0
    while (following := retry_at(NOW, attempts := attempts + 1, now)) is not None:
        assert timedelta(seconds=10) <= following - now <= timedelta(minutes=30)
        now = following
    assert now - NOW <= DELIVERY_LIFETIME
    assert 40 < attempts < 80
    assert retry_at(NOW, 10**9, NOW) == NOW + timedelta(minutes=30)


def test_endpoint_is_suspended_after_ten_failures_over_at_least_an_hour() -> None:
    hour = timedelta(hours=1)
    assert is_to_suspend(10, NOW - hour, NOW)
    assert not is_to_suspend(9, NOW - hour, NOW)
    assert not is_to_suspend(10, NOW - hour / 2, NOW)
