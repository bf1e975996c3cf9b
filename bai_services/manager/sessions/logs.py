"""Output of kernels: read, search, follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest, Unavailable
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.logs import (
    appended_since,
    is_timed,
    last_lines,
    search,
    without_times,
)

from .sessions import Row, Sessions

# Interval between requests for a log that is followed: it doubles while nothing new arrives.
SHORTEST_SECONDS = 0.5
LONGEST_SECONDS = 4.0
MAX_WORDS = 200


@dataclass(frozen=True, slots=True)
class Piece:
    """Output since the piece before; ``is_gap``: some output in between is lost."""

    text: str
    is_gap: bool = False


class Logs:
    """One method per verb; each raises what ``Sessions.logs`` raises."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def read(
        self,
        caller: Caller,
        key: str,
        kernel: str = MAIN_HOST,
        *,
        most_lines: int | None = None,
        words: str = "",
        has_times: bool = False,
    ) -> Row:
        """Return the output of a kernel, or its lines that contain ``words``; at most the last
        lines.

        Raises
        ------
        InvalidRequest
            If ``words`` is longer than 200 characters.
        """
        if len(words) > MAX_WORDS:
            raise InvalidRequest(
                f"{len(words)} characters are too many to search for; the limit is {MAX_WORDS}",
                field="search",
            )
        found = await self._sessions.logs(caller, key, kernel)
        text = str(found["log"])
        shown = text if has_times else without_times(text)
        answer: dict[str, Any] = {**found, "has_times": has_times and is_timed(text)}
        if words:
            result = search(shown, words)
            lines = result.lines if most_lines is None else result.lines[-most_lines:]
            numbered = [{"number": number, "text": line} for number, line in lines]
            shown = "".join(f"{line}\n" for _, line in lines)
            answer |= {"matches": numbered, "match_count": len(result.lines)}
        elif most_lines is not None:
            shown = last_lines(shown, most_lines)
        return {**answer, "log": shown}

    async def follow(
        self, caller: Caller, key: str, kernel: str = MAIN_HOST, *, has_times: bool = False
    ) -> AsyncGenerator[Piece | None]:
        """Yield a kernel's output so far and new output, until its session has ended.

        Yields None while there is nothing new, so that the caller can check whether the reader is
        still connected and still allowed to read.
        """
        before, pause = "", SHORTEST_SECONDS
        while True:
            try:
                found = await self._sessions.logs(caller, key, kernel)
            except Unavailable:
                # Its agent does not answer at the moment; the output since then follows later.
                found = None
            if found is not None:
                text = str(found["log"])
                # The stored log of an ended kernel may have no times although the live one had
                # them.
                text = text if has_times else without_times(text)
                more, is_gap = appended_since(before, text)
                if more:
                    yield Piece(more, is_gap)
                    before, pause = text, SHORTEST_SECONDS
                if not found["is_live"]:
                    return
            yield None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
