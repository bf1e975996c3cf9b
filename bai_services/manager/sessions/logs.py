"""What kernels print: read, searched, followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest, Unavailable
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.logs import added, is_timed, last_lines, search, without_times

from .sessions import Row, Sessions

# How often an agent is asked for a log that somebody follows: less often while nothing comes.
SHORTEST_SECONDS = 0.5
LONGEST_SECONDS = 4.0
MAX_WORDS = 200


@dataclass(frozen=True, slots=True)
class Piece:
    """What came since the piece before; ``is_gap`` says that some of it is gone."""

    text: str
    is_gap: bool = False


class Logs:
    """One method per verb; every one raises what `Sessions.logs` does."""

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
        """Return the output of a kernel, or its lines that hold ``words``, the last ones of these.

        Raises
        ------
        InvalidRequest
            If more than 200 characters are looked for.
        """
        if len(words) > MAX_WORDS:
            raise InvalidRequest(
                f"{len(words)} characters are looked for; at most {MAX_WORDS} can be",
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
    ) -> AsyncIterator[Piece | None]:
        """Yield what a kernel has printed and prints, until its session has ended.

        None comes while there is nothing new: the reader is asked for, and so
        is whether the caller may still read it.
        """
        before, pause = "", SHORTEST_SECONDS
        while True:
            try:
                found = await self._sessions.logs(caller, key, kernel)
            except Unavailable:
                # Its agent is away for a moment; what it prints meanwhile comes later.
                found = None
            if found is not None:
                text = str(found["log"])
                # What was kept at the end may have no times although the live one had them.
                text = text if has_times else without_times(text)
                more, is_gap = added(before, text)
                if more:
                    yield Piece(more, is_gap)
                    before, pause = text, SHORTEST_SECONDS
                if not found["is_live"]:
                    return
            yield None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
