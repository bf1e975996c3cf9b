"""Cancellation of event streams when their caller is signed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bai_services.core.errors import BaiError, Unavailable

from .base import APIHandler

# This interval plus ``sign_in.TOKEN_CACHE_SECONDS`` must be less than 5 s, because a sign-out must
# take effect within 5 s.
CHECK_INTERVAL_SECONDS = 1.5


@asynccontextmanager
async def cancel_on_sign_out(
    handler: APIHandler, interval_seconds: float = CHECK_INTERVAL_SECONDS
) -> AsyncIterator[None]:
    """Cancel the block after the caller of ``handler`` has been signed out.

    Raises
    ------
    NotSignedIn
        Instead of ``CancelledError``, if the block was cancelled by a sign-out.
    """
    block_task = asyncio.current_task()
    assert block_task is not None
    sign_in_error: BaiError | None = None

    async def check() -> None:
        nonlocal sign_in_error
        while sign_in_error is None:
            await asyncio.sleep(interval_seconds)
            try:
                await handler.settings["sign_in"].recheck(handler, handler.caller)
            except Unavailable:
                continue  # an outage of the Hub or the database does not sign users out
            except BaiError as error:
                sign_in_error = error
                block_task.cancel()

    check_task = asyncio.create_task(check())
    try:
        yield
    except asyncio.CancelledError:
        if sign_in_error is None or block_task.uncancel():
            raise
        raise sign_in_error from None
    finally:
        check_task.cancel()
