"""Commands to a running HAProxy over its control socket."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path

from bai_services.core.errors import Unavailable

ANSWER_SECONDS = 10.0
# HAProxy reads the commands of one line into one buffer.
MAX_LINE_BYTES = 16_000
_SUCCESSES = ("IP changed", "port changed", "no need to change")
_ENTRY = re.compile(r"key=(.*?) use=\d+ .*?(?:http_req_cnt|conn_cur)=(\d+)")
_SESSION = re.compile(r"(0x[0-9a-f]+): proto=\S+ src=(\S+) fe=(\S+)")


class Runtime:
    """Sends commands; each call opens a connection, so that it works after a restart of HAProxy."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def ask(self, command: str) -> str:
        """Return the response to a line of commands.

        Raises
        ------
        Unavailable
            If HAProxy does not respond.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    writer.write(command.encode() + b"\n")
                    answer = (await reader.read(-1)).decode("utf-8", "replace")
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"HAProxy does not respond: {error}") from error
        # A complete answer ends with an empty line.
        if not answer.endswith("\n\n" if answer.strip() else "\n"):
            raise Unavailable("HAProxy ended before its response was complete")
        return answer

    async def change(self, commands: Iterable[str]) -> None:
        """Run commands; on success, their output is empty or one of ``_SUCCESSES``.

        Raises
        ------
        Unavailable
            If HAProxy does not respond, or rejects a command.
        """
        for line in _lines(commands):
            for answer in (await self.ask(line)).splitlines():
                if answer.strip() and not answer.startswith(_SUCCESSES):
                    raise Unavailable(f"HAProxy rejects a command: {answer}")

    async def statistics(self) -> list[Mapping[str, str]]:
        """Return the counters of all backends, and of all servers that are not in maintenance."""
        return _rows(await self.ask("show stat -1 6 -1 no-maint"))

    async def table(self, name: str, condition: str = "") -> Iterator[tuple[str, int]]:
        """Return key and counter of the entries of a stick table."""
        text = await self.ask(f"show table {name} {condition}".strip())
        return ((found[1], int(found[2])) for found in _ENTRY.finditer(text))

    async def sessions(self) -> Iterator[tuple[str, str]]:
        """Return id and client address, with its port, of all running requests."""
        text = await self.ask("show sess")
        return ((found[1], found[2]) for found in _SESSION.finditer(text) if found[3] == "clients")


def _rows(text: str) -> list[Mapping[str, str]]:
    """Return the rows of a table; the first line of the text has the names of the columns.

    Texts in quotes, such as the agents' answers to health checks, may contain commas and line ends.
    """
    names, *rows = csv.reader(StringIO(text.strip().removeprefix("# "), newline=""))
    return [dict(zip(names, row, strict=False)) for row in rows if row]


def _lines(commands: Iterable[str]) -> Iterator[str]:
    line: list[str] = []
    size = 0
    for command in commands:
        added = len(command.encode()) + 1
        size += added
        if line and size > MAX_LINE_BYTES:
            yield ";".join(line)
            line, size = [], added
        line.append(command)
    if line:
        yield ";".join(line)
