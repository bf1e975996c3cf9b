"""Keypair signatures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.accounts.signature import (
    CLOCK_WINDOW,
    authorization,
    check_body,
    check_date,
    content_digest,
    parse_authorization,
    sign,
)
from bai_services.core.errors import NotSignedIn

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REQUEST = {
    "method": "GET",
    "path": "/services/bai/api/v1/me?x=1",
    "host": "hub.example",
    "date": NOW,
    "content_type": "application/json",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "POST"},
        {"path": "/services/bai/api/v1/me"},
        {"host": "other.example"},
        {"date": NOW + timedelta(days=1)},
        {"content_type": ""},
        {"content_digest": content_digest(b"x")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_signed_field_changes_the_signature(changed: dict[str, object]) -> None:
    assert sign("secret", **REQUEST) != sign("secret", **{**REQUEST, **changed})
    assert sign("secret", **REQUEST) != sign("other", **REQUEST)


def test_body_must_match_its_digest() -> None:
    # The SHA-256 digest of the body, in the format of RFC 9530.
    header = "sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:"
    assert content_digest(b"{}") == header
    check_body(header, b"{}")
    for wrong in (header + ", sha-512=::", "sha-256=::", "SHA-256" + header[7:], "\xfc"):
        with pytest.raises(NotSignedIn, match="does not match"):
            check_body(wrong, b"{}")


def test_authorization_header_is_parsed_into_its_parts() -> None:
    signature = sign("secret", **REQUEST)
    assert parse_authorization(authorization("AKIA1", signature)) == ("AKIA1", signature)


@pytest.mark.parametrize(
    "header", ["", "BackendAI", "BackendAI signMethod=HMAC-SHA1, credential=a:b"]
)
def test_malformed_authorization_header_is_rejected(header: str) -> None:
    with pytest.raises(NotSignedIn):
        parse_authorization(header)


def test_date_outside_the_clock_window_is_rejected() -> None:
    check_date(NOW - CLOCK_WINDOW, NOW)
    check_date(NOW + CLOCK_WINDOW, NOW)
    outside = CLOCK_WINDOW + timedelta(seconds=1)
    for date in (NOW - outside, NOW + outside):
        with pytest.raises(NotSignedIn, match="set the clock"):
            check_date(date, NOW)
