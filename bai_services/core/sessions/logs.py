"""Session logs: timestamps, search and appended output."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

# The API limits a request body to 1 MiB; 4 KiB are reserved for the other fields of a report.
MAX_LOG_BYTES = 2**20 - 4096
# Docker's timestamp before a line: UTC, with nanoseconds.
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")
# Maximum length of a line that Docker stores in one chunk; each chunk has a timestamp.
_CHUNK_BYTES = 16_384
# Number of characters at the end of the known log that are searched for in the new log.
_OVERLAP_CHARACTERS = 2048


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The matching lines with their numbers (from 1), and the number of all lines of the log."""

    lines: tuple[tuple[int, str], ...]
    total: int


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The output of an earlier attempt of a session that has returned to the queue.

    ``attempt`` counts from 0. ``log`` is empty if the output is unknown, such as while the agent is
    lost.
    """

    attempt: int
    ended_at: datetime
    reason: str
    log: str

    @property
    def separator(self) -> str:
        """The line between this attempt and the next one."""
        reason = " ".join(self.reason.split()) or "stopped"
        return (
            f"----- attempt {self.attempt + 1} ended at "
            f"{self.ended_at.replace(tzinfo=None):%Y-%m-%dT%H:%M:%SZ}: {reason} -----\n"
        )


def joined_log(attempts: Sequence[AttemptLog], current: str, max_characters: int) -> str:
    """Return the last characters of the output of all attempts, followed by ``current``.

    A separator line follows each attempt. The lines have timestamps only if the lines of all
    attempts have timestamps.
    """
    if not attempts:
        return current
    parts = [one.log for one in attempts]
    keeps_times = all(is_timed(text) for text in (*parts, current) if text)
    joined = ""
    for one in attempts:
        text = one.log if keeps_times else without_times(one.log)
        time = f"{one.ended_at.replace(tzinfo=None).isoformat(timespec='microseconds')}000Z "
        line_break = "" if not text or text.endswith("\n") else "\n"
        joined += f"{text}{line_break}{time if keeps_times else ''}{one.separator}"
    joined += current if keeps_times else without_times(current)
    if len(joined) <= max_characters:
        return joined
    cut = joined[-max_characters:]
    return cut.partition("\n")[2] or cut


def is_timed(text: str) -> bool:
    """Return whether the lines of a log begin with timestamps.

    The second line is also checked, because the first line may be truncated.
    """
    first, _, rest = text.partition("\n")
    return bool(_TIMESTAMP.match(first) or _TIMESTAMP.match(rest))


def without_times(text: str) -> str:
    """Return a log without Docker's timestamps."""
    if not is_timed(text):
        return text

    def replacement(match: re.Match[str]) -> str:
        # Docker's timestamps are at the beginning of a line or of a chunk of a line. Search at most
        # one chunk backwards, because a log may have no line break.
        low = max(0, match.start() - _CHUNK_BYTES)
        begin = max(low, text.rfind("\n", low, match.start()) + 1)
        before = match.start() - begin
        if before < _CHUNK_BYTES:
            before = len(text[begin : match.start()].encode(errors="replace"))
        return match[0] if 0 < before < _CHUNK_BYTES else ""

    return _TIMESTAMP.sub(replacement, text)


def last_lines(text: str, max_lines: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[-max_lines:]) if max_lines else ""


def first_matches(text: str, words: str, max_lines: int, max_chars: int) -> SearchResult:
    """Return the first matching lines, shortened, and the total number of matching lines.

    A line matches if it contains ``words``, ignoring case. The shortened line contains the first
    match.
    """
    folded = words.casefold()
    # A quick check of the whole text: most logs do not contain the words.
    if folded not in text.casefold():
        return SearchResult((), 0)
    found = search(text, words).lines
    lines = tuple(
        (number, _around(line, line.casefold().find(folded), max_chars))
        for number, line in found[:max_lines]
    )
    return SearchResult(lines, len(found))


def _around(line: str, at: int, max_chars: int) -> str:
    """Return at most ``max_chars`` characters of a line, around a position."""
    if len(line) <= max_chars:
        return line
    start = min(max(0, at - max_chars // 4), len(line) - max_chars)
    return line[start : start + max_chars]


def search(text: str, words: str) -> SearchResult:
    """Return the lines that contain ``words``, ignoring case."""
    lines = text.splitlines()
    folded = words.casefold()
    matches = ((number, line) for number, line in enumerate(lines, 1) if folded in line.casefold())
    return SearchResult(tuple(matches), len(lines))


def appended_since(before: str, after: str) -> tuple[str, bool]:
    """Return the text appended to a log, and whether some appended text may be missing.

    ``before`` and ``after`` are the log at two times; the beginning of each may be truncated.
    """
    if after.startswith(before):
        return after[len(before) :], False
    tail = before[-_OVERLAP_CHARACTERS:]
    at = after.rfind(tail)
    if at < 0:
        return after, True
    return after[at + len(tail) :], False


def truncated(log: str, max_bytes: int = MAX_LOG_BYTES) -> str:
    """Return the end of ``log`` that fits in ``max_bytes`` of JSON.

    The result consists of whole lines, unless the last line alone does not fit.
    """

    def is_too_long(cut: int) -> bool:
        return len(json.dumps(log[cut:], ensure_ascii=False).encode(errors="replace")) > max_bytes

    if not is_too_long(0):
        return log
    first = bisect.bisect_left(range(len(log)), True, key=lambda cut: not is_too_long(cut))
    return log[first:].partition("\n")[2] or log[first:]
