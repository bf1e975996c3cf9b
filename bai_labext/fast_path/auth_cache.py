"""Who was just let in to an app may ask for more of it in the same way, without Jupyter's check.

A shortcut belongs to the header block of a request that Jupyter let in by it, byte for byte: the
same cookies and tokens, from the same address. It holds for `SHORTCUT_SECONDS`, for the same app.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bai_labext.fast_path.upstream import Place

# A sign-in that has ended stays valid this long, on top of `sign_in_watch.CACHE_SECONDS`.
SHORTCUT_SECONDS = 1.5
MOST_BLOCKS = 256
MOST_BLOCK_BYTES = 16 * 1024

Note = Callable[[str], None]
"""Is told the path inside the app of each request."""

# A path that nothing in it means something else on the way, a query, and the version.
_PLAIN = re.compile(
    rb"[A-Za-z0-9_.~!$&'()*+,;=:@/-]*(?:\?[A-Za-z0-9_.~!$&'()*+,;=:@/?%-]*)? HTTP/1\.1"
)
_UNCLEAR = (b"..", b"//", b"token=")


@dataclass(frozen=True, slots=True)
class Shortcut:
    """What turns a request's line and headers into those for the app."""

    start: bytes
    target: bytes
    block: bytes = field(repr=False)
    place: Place
    note: Note
    until: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that has a shortcut: what the app is sent, and where."""

    message: bytes = field(repr=False)
    place: Place
    note: Callable[[], None]


class Shortcuts:
    """The shortcuts of one Jupyter server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of_block: dict[bytes, dict[bytes, Shortcut]] = {}
        self._until = 0.0

    def issue(self, head: bytes, sent: bytes, prefix: bytes, place: Place, note: Note) -> None:
        """Issue one for the headers of ``head``, a GET that Jupyter let in.

        ``sent`` is what the app got for it, and ``prefix`` the path of the app, with a slash at
        its end. Nothing happens where that is not all that lies between the two.
        """
        line, _, block = head.partition(b"\r\n")
        sent_line, _, sent_block = sent.partition(b"\r\n")
        start = b"GET " + prefix
        if not line.startswith(start) or len(block) > MOST_BLOCK_BYTES:
            return
        rest = line[len(start) :]
        # Some apps are asked with their whole path.
        target = next((t for t in (b"GET /", start) if sent_line == t + rest), None)
        if target is None:
            return
        now = self._clock()
        if len(self._of_block) >= MOST_BLOCKS:
            self._forget(now)
        self._until = now + SHORTCUT_SECONDS
        issued = Shortcut(start, target, sent_block, place, note, self._until)
        self._of_block.setdefault(block, {})[start] = issued

    def find(self, said: bytes) -> Admitted | None:
        """Return the request that was said if it is one, whole and alone, with a shortcut."""
        line, _, block = said.partition(b"\r\n")
        for issued in self._of_block.get(block, {}).values():
            if line.startswith(issued.start):
                return self._admitted(issued, line[len(issued.start) :])
        return None

    @property
    def are_any(self) -> bool:
        return self._clock() < self._until

    def _admitted(self, issued: Shortcut, rest: bytes) -> Admitted | None:
        if self._clock() >= issued.until:
            return None
        if not _PLAIN.fullmatch(rest) or any(word in rest for word in _UNCLEAR):
            return None
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("ascii")
        message = b"".join((issued.target, rest, b"\r\n", issued.block))
        return Admitted(message, issued.place, lambda: issued.note(f"/{path}"))

    def _forget(self, now: float) -> None:
        kept = {
            block: valid
            for block, of in self._of_block.items()
            if (valid := {start: each for start, each in of.items() if now < each.until})
        }
        self._of_block = kept if len(kept) < MOST_BLOCKS else {}


shortcuts = Shortcuts()
