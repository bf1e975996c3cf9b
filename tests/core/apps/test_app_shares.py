"""Signed tokens of visitors, and the policy's limits on sharing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.apps.shares import (
    Audience,
    VisitorToken,
    VisitorTokenKind,
    check_addresses,
    check_app,
    check_sharing,
    decode_token,
    encode_token,
    share_end,
)
from bai_services.core.errors import Forbidden, InvalidRequest

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY = b"key"
ENTRY = VisitorToken(VisitorTokenKind.ENTRY, "share", "person", NOW + timedelta(minutes=1), "nonce")


def test_decoded_token_equals_the_encoded_one() -> None:
    assert decode_token(KEY, encode_token(KEY, ENTRY), VisitorTokenKind.ENTRY, NOW) == ENTRY


@pytest.mark.parametrize(
    ("text", "kind", "key", "later"),
    [
        (encode_token(KEY, ENTRY), VisitorTokenKind.VISIT, KEY, 0),
        (encode_token(KEY, ENTRY), VisitorTokenKind.ENTRY, b"another", 0),
        (encode_token(KEY, ENTRY), VisitorTokenKind.ENTRY, KEY, 60),
        (encode_token(KEY, ENTRY).replace("person", "boss"), VisitorTokenKind.ENTRY, KEY, 0),
        (encode_token(KEY, ENTRY) + "x", VisitorTokenKind.ENTRY, KEY, 0),
        ("", VisitorTokenKind.ENTRY, KEY, 0),
        ("a.b.c.d.e.f", VisitorTokenKind.ENTRY, KEY, 0),
        ("ä", VisitorTokenKind.ENTRY, KEY, 0),
    ],
)
def test_forged_or_expired_token_is_rejected(
    text: str, kind: VisitorTokenKind, key: bytes, later: int
) -> None:
    assert decode_token(key, text, kind, NOW + timedelta(seconds=later)) is None


@pytest.mark.parametrize(
    ("allowed", "reached"),
    [
        ("none", []),
        ("user", [Audience.USER]),
        ("project", [Audience.USER, Audience.PROJECT]),
        ("public", list(Audience)),
    ],
)
def test_policy_allows_audiences_up_to_its_limit(allowed: str, reached: list[Audience]) -> None:
    for audience in Audience:
        if audience in reached:
            check_sharing(allowed, audience)
        else:
            with pytest.raises(Forbidden, match=f"share apps with: {allowed}; {audience}"):
                check_sharing(allowed, audience)


@pytest.mark.parametrize(
    "name", ["jupyterlab", "terminal", "vscode", "vscode-desktop", "rstudio", "ssh"]
)
def test_app_with_access_to_the_whole_session_cannot_be_shared(name: str) -> None:
    with pytest.raises(InvalidRequest, match="whole session"):
        check_app(name)


@pytest.mark.parametrize("name", ["", "Tensor", "a/b", "..", "a" * 65])
def test_invalid_app_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not the name of an app"):
        check_app(name)


def test_public_share_requires_networks_and_all_networks_must_be_valid() -> None:
    assert check_addresses(Audience.USER, []) is None
    assert check_addresses(Audience.PUBLIC, ["192.0.2.7", "2001:db8::/32"]) == [
        "192.0.2.7/32",
        "2001:db8::/32",
    ]
    assert check_addresses(Audience.USER, ["::ffff:192.0.2.0/120"]) == ["192.0.2.0/24"]
    # As in the allowed addresses of a user, the bits after the prefix are cleared.
    assert check_addresses(Audience.USER, ["192.0.2.7/24"]) == ["192.0.2.0/24"]
    for audience, given in ((Audience.PUBLIC, []), (Audience.USER, ["192.0.2.7/40"])):
        with pytest.raises(InvalidRequest) as rejected:
            check_addresses(audience, given)
        assert rejected.value.details["field"] == "allowed_addresses"


@pytest.mark.parametrize(
    ("asked", "most", "days"), [(None, 0, 7), (None, 86400, 1), (2 * 86400, 0, 2)]
)
def test_share_ends_after_requested_or_default_time(
    asked: int | None, most: int, days: int
) -> None:
    assert share_end(NOW, asked, most) == NOW + timedelta(days=days)


def test_share_longer_than_the_policy_allows_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="your policy allows 3600 s"):
        share_end(NOW, 3601, 3600)
