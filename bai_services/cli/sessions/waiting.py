"""Waiting for a session: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from bai_services.client import Client
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.sessions.lifecycle import ENDED, Result, SessionType, Status

from .. import output, units
from ..command import Connection
from ..screen import Screen
from ..text import printable
from .info import next_commands
from .wait_reasons import remedy_texts, wait_parts

# On a terminal a poll returns soon, to show progress; without one it may take long.
_TERMINAL_POLL_SECONDS = 1.0
_PLAIN_POLL_SECONDS = 5.0
_SILENT_POLL_SECONDS = 20.0
_MIN_POLL_INTERVAL_SECONDS = 0.1
_REMEDIES_INTERVAL_SECONDS = 10.0
_MAX_REMEDIES = 2
_DIVIDER = "   ·   "
_REFRESHES_PER_SECOND = 4
# Plain lines for a changed position or amount come no more often.
_MIN_SECONDS_BETWEEN_LINES = 30.0
# A manager that restarts is back by then.
_MAX_UNAVAILABLE_SECONDS = 30.0


async def wait_for_status(
    client: Client,
    session: Mapping[str, Any],
    status: Status,
    timeout_seconds: float | None,
    *,
    is_reported: bool = False,
) -> dict[str, Any]:
    """Return the session once it is ``status`` or has ended.

    Standard error shows what the session waits for: one live line on a terminal, elsewhere with
    ``is_reported`` a plain line whenever the reason changes. A manager that is unavailable for
    less than 30 seconds is waited for.

    Raises
    ------
    BaiError
        If ``timeout_seconds`` pass first; the session continues.
    Unavailable
        If the manager stays unavailable.
    """
    latest = [session]
    try:
        return await _wait(client, latest, status, timeout_seconds, is_reported=is_reported)
    except asyncio.CancelledError:
        # Ctrl-C: asyncio.run cancels the command before it raises KeyboardInterrupt.
        click.echo(interrupted(latest[-1], status), err=True)
        raise


def interrupted(session: Mapping[str, Any], status: Status) -> str:
    """Return what happens to a session after its user stopped waiting for it."""
    name = printable(str(session["name"]))
    if session["status"] == Status.PENDING:
        state = "remains queued"
    elif session["status"] == Status.TERMINATING or status in ENDED:
        state = f"is {session['status']}, which continues"
        if session["status"] == Status.TERMINATING:
            return f"session {name} {state}: bai session info {name}"
    else:
        state = f"is {session['status']} and continues to start"
    return f"session {name} {state}; cancel it with: bai session rm {name}"


def print_result(
    connection: Connection, session: Mapping[str, Any], seconds: float, *, as_json: bool
) -> None:
    """Print what became of a session that was waited for: its state, address, next commands."""
    if as_json:
        output.print_json(session)
        return
    name, status = printable(session["name"]), session["status"]
    title = Text("✓ ", style="green").append(name, style="bold not green")
    state = "is running" if status == Status.RUNNING else f"is {status}"
    if session["type"] == SessionType.BATCH and session["result"] == Result.SUCCESS:
        state = "ended successfully"
    title.append(f" {state} ({units.span(seconds)})", style="default")
    _print_next(connection, session, title)


def print_created(connection: Connection, session: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a session that was created and is not waited for."""
    if as_json:
        output.print_json(session)
        return
    title = Text(printable(session["name"]), style="bold")
    title.append(f" is {session['status']}", style="not bold")
    _print_next(connection, session, title)


def _print_next(connection: Connection, session: Mapping[str, Any], title: Text) -> None:
    screen = Screen(title)
    if session["status"] == Status.RUNNING and session["type"] != SessionType.BATCH:
        screen.add("Open", connection.address(session["url"]))
    screen.add("Next", " · ".join(next_commands(session)))
    screen.print(output.console())


async def _wait(
    client: Client,
    latest: list[Mapping[str, Any]],
    status: Status,
    timeout_seconds: float | None,
    *,
    is_reported: bool,
) -> dict[str, Any]:
    """As ``wait_for_status``; replaces the item of ``latest`` by each answer."""
    found = dict(latest[-1])
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    if found["status"] == status or found["status"] in ENDED:
        return found
    async with _report(client, is_reported=is_reported) as report:
        last_answer = time.monotonic()
        while found["status"] != status and found["status"] not in ENDED:
            await report.show(found)
            now = time.monotonic()
            poll = report.poll_seconds
            left = poll if deadline is None else min(poll, deadline - now)
            if left <= 0:
                raise BaiError(
                    f"session {found['name']} is still {found['status']} after "
                    f"{timeout_seconds:g} s; it continues: bai session info {found['name']}",
                    session=found,
                )
            try:
                found = await client.get(
                    f"/sessions/{found['id']}",
                    wait=status.value,
                    timeout=f"{left:.1f}",
                    timeout_seconds=left + 30,
                )
                last_answer = time.monotonic()
                latest[:] = [found]
            except Unavailable:
                if time.monotonic() - last_answer > _MAX_UNAVAILABLE_SECONDS:
                    raise
            # Limits the rate also when answers come at once.
            await asyncio.sleep(max(0.0, now + _MIN_POLL_INTERVAL_SECONDS - time.monotonic()))
    return found


class _Silence:
    """Reports nothing."""

    poll_seconds = _SILENT_POLL_SECONDS

    async def show(self, session: Mapping[str, Any]) -> None:
        pass


class _PlainLines:
    """Writes a line to standard error when the reason for waiting has changed."""

    def __init__(self) -> None:
        # A new session has its reasons a moment after it was created.
        self.poll_seconds = _TERMINAL_POLL_SECONDS
        self._is_first = True
        self._text = ""
        self._cause: object = None
        self._at = 0.0

    async def show(self, session: Mapping[str, Any]) -> None:
        if self._is_first:
            self._is_first = False
            return
        self.poll_seconds = _PLAIN_POLL_SECONDS
        is_pending = session["status"] == Status.PENDING
        parts = wait_parts(session)
        text = f"session {printable(session['name'])} "
        text += f"waits: {' · '.join(parts)}" if is_pending else f"is {' · '.join(parts)}"
        cause = (session["status"], [one.get("check") for one in session.get("reasons") or ()])
        now = time.monotonic()
        is_late = now - self._at >= _MIN_SECONDS_BETWEEN_LINES
        if text != self._text and (cause != self._cause or is_late):
            click.echo(text, err=True)
            self._text, self._cause, self._at = text, cause, now


class _LiveLine:
    """Shows elapsed time, position, reason and remedies on a terminal, renewed in place."""

    poll_seconds = _TERMINAL_POLL_SECONDS

    def __init__(self, client: Client, width: int) -> None:
        self._client = client
        self._width = width
        self._begin = time.monotonic()
        self._session: Mapping[str, Any] = {}
        self._remedies: list[str] = []
        self._remedies_at = 0.0

    async def show(self, session: Mapping[str, Any]) -> None:
        self._session = session
        now = time.monotonic()
        if session["status"] != Status.PENDING:
            self._remedies = []
        elif now - self._remedies_at >= _REMEDIES_INTERVAL_SECONDS or not self._remedies:
            self._remedies_at = now
            # Remedies are an extra: the wait itself goes on without them.
            with contextlib.suppress(BaiError):
                why = await self._client.get(f"/sessions/{session['id']}/why")
                self._remedies = remedy_texts(why["sooner"])

    def render(self) -> Text:
        if not self._session:
            return Text()
        seconds = time.monotonic() - self._begin
        return live_text(self._session, seconds, self._remedies, self._width)


_VERBS: Mapping[str, str] = {
    Status.PENDING: "Waiting",
    Status.RUNNING: "Running",
    Status.TERMINATING: "Stopping",
}


def live_text(session: Mapping[str, Any], seconds: float, remedies: list[str], width: int) -> Text:
    """Return the live text of a session that is waited for, for a terminal of ``width``."""
    status = session["status"]
    verb = _VERBS.get(status, "Starting")
    text = Text(f"{verb} {units.clock(seconds)}", style="bold")
    for part in wait_parts(session):
        if part not in (Status.RUNNING, Status.TERMINATING):
            text.append(f" · {part}", style="not bold")
    continues = "stays queued" if status == Status.PENDING else "continues"
    keys = f"Ctrl-C stops watching; the session {continues}"
    sooner = f"sooner with: {' or '.join(remedies[:_MAX_REMEDIES])}" if remedies else ""
    if sooner:
        text.append(f"\n  {sooner}", style="not bold")
    is_one_line = bool(sooner) and len(sooner) + len(_DIVIDER) + len(keys) + 2 <= width
    return text.append((_DIVIDER if is_one_line else "\n  ") + keys, style="not bold dim")


@contextlib.asynccontextmanager
async def _report(
    client: Client, *, is_reported: bool
) -> AsyncIterator[_Silence | _PlainLines | _LiveLine]:
    console = output.progress_console()
    if not console.is_terminal:
        yield _PlainLines() if is_reported else _Silence()
    else:
        line = _LiveLine(client, console.width)
        with Live(
            get_renderable=line.render,
            console=console,
            transient=True,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield line
