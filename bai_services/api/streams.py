"""Endless answers (server-sent events), which end with the sign-in that opened them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bai_services.core.errors import BaiError, Unavailable

from .base import APIHandler

# Together with ``sign_in.TOKEN_CACHE_SECONDS`` below 5 s.
CHECK_SECONDS = 1.5


@asynccontextmanager
async def ends_with_sign_in(
    handler: APIHandler, check_seconds: float = CHECK_SECONDS
) -> AsyncIterator[None]:
    """Cancel the block soon after the caller of ``handler`` has been signed out.

    Raises
    ------
    NotSignedIn
        In place of the cancellation.
    """
    writing = asyncio.current_task()
    assert writing is not None
    refusal: BaiError | None = None

    async def check() -> None:
        nonlocal refusal
        while refusal is None:
            await asyncio.sleep(check_seconds)
            try:
                await handler.settings["sign_in"].recheck(handler, handler.caller)
            except Unavailable:
                continue  # the Hub or the database does not answer, which signs nobody out
            except BaiError as error:
                refusal = error
                writing.cancel()

    checking = asyncio.create_task(check())
    try:
        yield
    except asyncio.CancelledError:
        if refusal is None or writing.uncancel():
            raise
        raise refusal from None
    finally:
        checking.cancel()
