"""Triggers: signed requests of other services that run a pipeline."""

from __future__ import annotations

import hmac
import re
import uuid
from datetime import datetime

from ..errors import NotSignedIn
from ..sessions.callbacks import signature

MAX_TRIGGERS_PER_PIPELINE = 20
MAX_CALL_BYTES = 64 * 1024
# A call is valid for this time before and after its timestamp.
WINDOW_SECONDS = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_NAMESPACE = uuid.UUID("b2a5a3b8-6a0c-4f0c-9d4f-1c1f0c2f7f10")


def check_call(secret: str, timestamp: str, given: str, body: bytes, now: datetime) -> None:
    """Check the signature of a call, in constant time.

    Raises
    ------
    NotSignedIn
        If the signature or the timestamp is not valid.
    """
    is_timestamp = _TIMESTAMP.fullmatch(timestamp) is not None
    seconds = int(timestamp) if is_timestamp else 0
    expected = signature(secret, seconds, body)
    is_match = hmac.compare_digest(expected.encode(), given.encode(errors="replace"))
    is_recent = abs(now.timestamp() - seconds) <= WINDOW_SECONDS
    if not (is_timestamp and is_match and is_recent):
        raise NotSignedIn(
            "there is no such trigger, or the signature is not valid, or its time differs by more "
            f"than {WINDOW_SECONDS} s"
        )


def run_id_of(trigger_id: str, given: str) -> str:
    """Return the id of the run of a call; a repeated call has the same id."""
    return str(uuid.uuid5(_NAMESPACE, f"{trigger_id}/{given}"))
