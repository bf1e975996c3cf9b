"""Read, search and follow the output of kernels."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest, RateLimited, Unavailable
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.logs import (
    appended_since,
    is_timed,
    last_lines,
    search,
    without_times,
)
from bai_services.core.sessions.records import LogMatch, LogText

from .sessions import Sessions

# Poll interval for following a log; it doubles while there is no new output.
MIN_POLL_SECONDS = 0.5
MAX_POLL_SECONDS = 4.0
MAX_SEARCH_CHARACTERS = 200
# Maximum number of logs that a user follows concurrently: each poll reads a whole log.
MAX_FOLLOWED_LOGS = 32


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Output after the previous chunk.

    ``is_gap`` is true if output between the two chunks may be missing.
    """

    text: str
    is_gap: bool = False


def check_search_text(text: str) -> None:
    """Raise ``InvalidRequest`` if a text to search for is too long."""
    if len(text) > MAX_SEARCH_CHARACTERS:
        raise InvalidRequest(
            f"the search text has {len(text)} characters; the limit is {MAX_SEARCH_CHARACTERS}",
            field="search",
        )


class Logs:
    """Reads the output of kernels.

    The methods also raise the errors of ``Sessions.logs``, but ``follow`` retries if the agent is
    unavailable.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        # Number of logs that each user follows.
        self._followed: Counter[str] = Counter()

    async def read(
        self,
        caller: Caller,
        key: str,
        kernel: str = MAIN_HOST,
        *,
        max_lines: int | None = None,
        search_text: str = "",
        has_times: bool = False,
    ) -> LogText:
        """Return the output of a kernel or, with ``search_text``, the lines that contain this text.

        ``max_lines`` limits the result to the last lines. With ``has_times``, lines keep their
        timestamps.

        Raises
        ------
        InvalidRequest
            If ``search_text`` is longer than ``MAX_SEARCH_CHARACTERS``.
        """
        check_search_text(search_text)
        output = await self._sessions.logs(caller, key, kernel)
        text = output.log
        shown = text if has_times else without_times(text)
        response = LogText(
            session_id=output.session_id,
            kernel=output.kernel,
            log=shown,
            is_live=output.is_live,
            has_times=has_times and is_timed(text),
        )
        if search_text:
            result = search(shown, search_text)
            lines = result.lines if max_lines is None else result.lines[-max_lines:]
            response["matches"] = [LogMatch(number=number, text=line) for number, line in lines]
            response["match_count"] = len(result.lines)
            response["log"] = "".join(f"{line}\n" for _, line in lines)
        elif max_lines is not None:
            response["log"] = last_lines(shown, max_lines)
        return response

    async def follow(
        self, caller: Caller, key: str, kernel: str = MAIN_HOST, *, has_times: bool = False
    ) -> AsyncGenerator[LogChunk | None]:
        """Yield a kernel's output so far, then new output until its session ends.

        Yields None before each pause, so that the caller can check whether the reader is still
        connected and still allowed to read.

        Raises
        ------
        RateLimited
            If the caller already follows ``MAX_FOLLOWED_LOGS`` logs.
        """
        reader = caller.user_id or caller.username
        if self._followed[reader] >= MAX_FOLLOWED_LOGS:
            raise RateLimited(
                f"you already follow {MAX_FOLLOWED_LOGS} logs, which is the maximum; close one of "
                "them first",
                limit=MAX_FOLLOWED_LOGS,
            )
        self._followed[reader] += 1
        try:
            async with aclosing(self._chunks(caller, key, kernel, has_times=has_times)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._followed[reader] -= 1
            if not self._followed[reader]:
                del self._followed[reader]

    async def _chunks(
        self, caller: Caller, key: str, kernel: str, *, has_times: bool
    ) -> AsyncGenerator[LogChunk | None]:
        before, pause = "", MIN_POLL_SECONDS
        while True:
            try:
                output = await self._sessions.logs(caller, key, kernel)
            except Unavailable:
                # The agent is not responding; read the output when the agent responds again.
                output = None
            if output is not None:
                text = output.log
                # The live log may have timestamps that the stored log of the ended kernel lacks.
                if not has_times:
                    text = without_times(text)
                elif not is_timed(text):
                    before = without_times(before)
                more, is_gap = appended_since(before, text)
                if more:
                    yield LogChunk(more, is_gap)
                    before, pause = text, MIN_POLL_SECONDS
                if output.has_ended:
                    return
            yield None
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_POLL_SECONDS)
