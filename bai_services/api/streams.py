"""Cancel event streams and downloads when their caller is signed out or has other permissions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import BaiError, Unavailable

from .base import APIHandler

# This interval plus ``sign_in.TOKEN_CACHE_SECONDS`` must be less than 5 s, because a sign-out must
# take effect within 5 s.
CHECK_INTERVAL_SECONDS = 1.5


class AccessChanged(Exception):
    """The caller's role, domain or projects have changed since the request."""


@asynccontextmanager
async def cancel_on_access_change(
    handler: APIHandler,
    interval_seconds: float = CHECK_INTERVAL_SECONDS,
    require: Callable[[Caller], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Cancel the block when the caller of ``handler`` is signed out or has other permissions.

    ``require`` replaces the comparison of permissions: an error that it raises for the current
    caller cancels the block.

    Raises
    ------
    NotSignedIn
        Instead of ``CancelledError``, if the block was cancelled by a sign-out.
    AccessChanged
        Instead of ``CancelledError``, if the block was cancelled by a change of permissions.
    BaiError
        Instead of ``CancelledError``, if the block was cancelled by an error of ``require``.
    """
    block_task = asyncio.current_task()
    assert block_task is not None
    cause: BaiError | AccessChanged | None = None

    async def check() -> None:
        nonlocal cause
        while cause is None:
            await asyncio.sleep(interval_seconds)
            try:
                caller = await handler.settings["sign_in"].recheck(handler, handler.caller)
                if require is not None:
                    await require(caller)
            except Unavailable:
                continue  # users are not signed out by an outage of the Hub or the database
            except BaiError as error:
                cause = error
                block_task.cancel()
            else:
                if require is None and _permissions_of(caller) != _permissions_of(handler.caller):
                    cause = AccessChanged()
                    block_task.cancel()

    check_task = asyncio.create_task(check())
    try:
        yield
    except asyncio.CancelledError:
        if cause is None or block_task.uncancel():
            raise
        raise cause from None
    finally:
        check_task.cancel()


def _permissions_of(caller: Caller) -> tuple[Role, str | None, frozenset[str]]:
    return caller.role, caller.domain, caller.projects
