"""Who may use a shared app: the manager is asked, and its answer holds for a few seconds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bai_services.core.errors import Forbidden, Unavailable

# A share that was revoked, or a visitor's sign-in that has ended, stays valid this long.
ANSWER_SECONDS = 2.0
# A manager that is away keeps nobody out who was in a moment ago.
GRACE_SECONDS = 60.0
MOST_ANSWERS = 1000

Ask = Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Visit:
    """An app that somebody uses from somewhere, by the pass that their browser keeps."""

    app: str
    client_ip: str
    text: str


class Visits:
    """The visitors of one session."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._admitted: dict[Visit, float] = {}

    async def enter(self, app: str, client_ip: str, entry: str) -> Visit:
        """Return the visit that begins with an entry of the manager's.

        Raises
        ------
        Forbidden
            If the entry is not right, was used, or is too old.
        Unavailable
            If the manager cannot be asked.
        """
        found = await self._ask({"app": app, "client_ip": client_ip, "entry": entry})
        visit = Visit(app, client_ip, str(found["visit"]))
        self._note(visit)
        return visit

    async def check(self, visit: Visit) -> None:
        """Return if a visit may go on.

        Raises
        ------
        Forbidden
            If it may not.
        Unavailable
            If the manager cannot be asked, and has not been for a while.
        """
        if not visit.text:
            raise Forbidden("this app is opened by the link of a share")
        age = self._clock() - self._admitted.get(visit, float("-inf"))
        if age < ANSWER_SECONDS:
            return
        shown = {"app": visit.app, "client_ip": visit.client_ip, "visit": visit.text}
        try:
            await self._ask(shown)
        except Unavailable:
            if age >= GRACE_SECONDS:
                raise
        except Forbidden:
            self._admitted.pop(visit, None)
            raise
        else:
            self._note(visit)

    def _note(self, visit: Visit) -> None:
        now = self._clock()
        if len(self._admitted) >= MOST_ANSWERS:
            recent = {v: at for v, at in self._admitted.items() if now - at < GRACE_SECONDS}
            self._admitted = recent if len(recent) < MOST_ANSWERS else {}
        self._admitted[visit] = now
