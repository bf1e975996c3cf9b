"""Signatures of the calls of triggers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.errors import NotSignedIn
from bai_services.core.pipelines.triggers import WINDOW_SECONDS, check_call, run_id_of
from bai_services.core.sessions.callbacks import signature

NOW = datetime(2026, 3, 2, tzinfo=UTC)
STAMP = int(NOW.timestamp())
BODY = b'{"parameters": {}}'


def test_signed_call_is_valid_in_its_window() -> None:
    for seconds in (-WINDOW_SECONDS, 0, WINDOW_SECONDS):
        now = NOW + timedelta(seconds=seconds)
        check_call("secret", str(STAMP), signature("secret", STAMP, BODY), BODY, now)


@pytest.mark.parametrize(
    ("secret", "timestamp", "body", "seconds"),
    [
        pytest.param("other", str(STAMP), BODY, 0, id="another secret"),
        pytest.param("secret", str(STAMP), b"{}", 0, id="another body"),
        pytest.param("secret", str(STAMP + 1), BODY, 0, id="another timestamp"),
        pytest.param("secret", str(STAMP), BODY, WINDOW_SECONDS + 1, id="too late"),
        pytest.param("secret", str(STAMP), BODY, -WINDOW_SECONDS - 1, id="too early"),
        pytest.param("secret", "", BODY, 0, id="no timestamp"),
        pytest.param("secret", "9" * 5000, BODY, 0, id="a huge timestamp"),
        pytest.param("secret", f"{STAMP}.5", BODY, 0, id="a fraction"),
    ],
)
def test_other_calls_are_refused(secret: str, timestamp: str, body: bytes, seconds: int) -> None:
    given = signature("secret", STAMP, BODY)
    with pytest.raises(NotSignedIn, match="signature is not valid"):
        check_call(secret, timestamp, given, body, NOW + timedelta(seconds=seconds))


def test_signatures_with_other_characters_are_refused() -> None:
    for given in ("", "v1=", "\ud800", "v1=é"):
        with pytest.raises(NotSignedIn):
            check_call("secret", str(STAMP), given, BODY, NOW)


def test_each_call_has_its_own_run() -> None:
    ids = {run_id_of(trigger, given) for trigger in ("a", "b") for given in ("v1=1", "v1=2")}
    assert len(ids) == 4
    assert run_id_of("a", "v1=1") in ids
