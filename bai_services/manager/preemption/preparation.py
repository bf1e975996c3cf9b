"""Prepare a session for a stop that was announced to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

# Prepares a running session for a stop within a number of seconds, for example by saving its
# notebooks. The call may take the whole time; the session is stopped at the deadline in any case.
PrepareStop = Callable[[str, float], Awaitable[None]]


# Notifies a session that its announced stop is cancelled.
CancelStop = Callable[[str], Awaitable[None]]


async def no_cancellation(session_id: str) -> None:
    """Do nothing: the session was not prepared."""


async def no_preparation(session_id: str, seconds: float) -> None:
    """Do nothing: the session is not informed of its deadline."""


async def prepare(hook: PrepareStop, session_id: str, seconds: float) -> None:
    """Call a hook; log its errors, which must not prevent the stop."""
    try:
        await hook(session_id, seconds)
    except Exception:
        log.exception("session %s could not be prepared for its preemption", session_id)
