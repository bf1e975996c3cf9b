"""Output of kernels as text: timestamps of lines, added lines, search."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Docker's timestamp before a line: nine digits of a second, always UTC.
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z "
_STAMPED = re.compile(_STAMP)
# A longer line is stored in pieces, each with its own timestamp.
_PIECE_BYTES = 16_384
# Length of the known tail that is searched for in the new output.
_OVERLAP = 2048


@dataclass(frozen=True, slots=True)
class Found:
    """The lines that contain a text, with their numbers from 1, and the total number of lines."""

    lines: tuple[tuple[int, str], ...]
    total: int


def is_timed(text: str) -> bool:
    """Return whether the lines of an output begin with timestamps.

    The first line may be the rest of a truncated one.
    """
    first, _, rest = text.partition("\n")
    return bool(_STAMPED.match(first) or _STAMPED.match(rest))


def without_times(text: str) -> str:
    """Return an output without timestamps."""
    if not is_timed(text):
        return text

    def kept(found: re.Match[str]) -> str:
        # Search back at most one piece: an output may have no line break at all.
        low = max(0, found.start() - _PIECE_BYTES)
        begin = max(low, text.rfind("\n", low, found.start()) + 1)
        before = found.start() - begin
        if before < _PIECE_BYTES:
            before = len(text[begin : found.start()].encode(errors="replace"))
        return found[0] if 0 < before < _PIECE_BYTES else ""

    return _STAMPED.sub(kept, text)


def last_lines(text: str, most: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[-most:]) if most else ""


def search(text: str, words: str) -> Found:
    """Return the lines that contain ``words``, ignoring case."""
    lines = text.splitlines()
    wanted = words.casefold()
    found = ((number, line) for number, line in enumerate(lines, 1) if wanted in line.casefold())
    return Found(tuple(found), len(lines))


def added(before: str, after: str) -> tuple[str, bool]:
    """Return what was added to an output, and whether some of it may be missing.

    Both are tails of one output, of which older parts may be cut off.
    """
    if after.startswith(before):
        return after[len(before) :], False
    known = before[-_OVERLAP:]
    at = after.rfind(known)
    if at < 0:
        return after, True
    return after[at + len(known) :], False
