"""Wait for a session and show its progress: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from bai_services.client import Client
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.sessions.lifecycle import ENDED, Result, SessionType, Status, has_reached

from .. import output, units
from ..command import Connection
from ..screen import Screen
from ..text import printable
from .info import next_commands
from .wait_reasons import position_and_reasons, quota_note, remedy_texts, starts_text

# Timeouts of a long poll: short on a terminal, to show current progress; longer otherwise.
_TERMINAL_POLL_SECONDS = 1.0
_PLAIN_POLL_SECONDS = 5.0
_SILENT_POLL_SECONDS = 20.0
_MIN_POLL_INTERVAL_SECONDS = 0.1
# A command that does not wait for the start waits this long for the first scheduling pass.
_FIRST_PASS_POLLS = 3
_FIRST_PASS_POLL_SECONDS = 0.5
_REMEDIES_INTERVAL_SECONDS = 10.0
_MAX_REMEDIES = 2
_DIVIDER = " · "
_REFRESHES_PER_SECOND = 4
# Minimum interval between plain lines if only the position or a number changed, not the reason.
_MIN_SECONDS_BETWEEN_LINES = 30.0
# This is long enough for a restart of the manager.
_MAX_UNAVAILABLE_SECONDS = 30.0


async def wait_for_status(
    client: Client,
    session: Mapping[str, Any],
    status: Status,
    timeout_seconds: float | None,
    *,
    show_progress: bool = False,
) -> dict[str, Any]:
    """Return the session once it has reached or passed ``status`` or has ended.

    If the session is already TERMINATING and ``status`` is another status, the wait continues until
    its end: only then is it known whether the session was successful.

    Progress is written to standard error: on a terminal as a live display; elsewhere only with
    ``show_progress``, as plain lines (see ``_PlainLines``). While the manager is unavailable,
    requests are retried for up to 30 s.

    Raises
    ------
    BaiError
        If ``timeout_seconds`` elapse first; the session itself is not affected.
    Unavailable
        If the manager is still unavailable after 30 s.
    """
    latest = session

    def update(response: Mapping[str, Any]) -> None:
        nonlocal latest
        latest = response

    try:
        return await _wait(
            client, session, status, timeout_seconds, update, show_progress=show_progress
        )
    except asyncio.CancelledError:
        # Ctrl-C: asyncio.run cancels the command before it raises KeyboardInterrupt.
        click.echo(interruption_message(latest, status), err=True)
        raise


def interruption_message(session: Mapping[str, Any], awaited: Status) -> str:
    """Return the message shown when the user interrupts the wait (Ctrl-C)."""
    name, status = printable(str(session["name"])), session["status"]
    if status == Status.TERMINATING:
        return f"session {name} is still stopping; check it with: bai session info {name}"
    if status == Status.PENDING:
        state = "remains pending"
    elif awaited in ENDED:
        state = f"is still {status}"
    else:
        state = f"is {status} and continues to start"
    return f"session {name} {state}; stop it with: bai session rm {name}"


def print_result(
    connection: Connection, session: Mapping[str, Any], seconds: float, *, as_json: bool
) -> None:
    """Print the outcome of a wait of ``seconds``: the session's state, URL and next commands."""
    if as_json:
        output.print_json(session)
        return
    name, status = printable(session["name"]), session["status"]
    title = Text("✓ ", style="green").append(name, style="bold not green")
    state = "is running" if status == Status.RUNNING else f"is {status}"
    if session["type"] == SessionType.BATCH and session["result"] == Result.SUCCESS:
        state = "ended successfully"
    title.append(f" {state} ({units.duration(seconds)})", style="default")
    _print_next(connection, session, title)


async def after_first_pass(client: Client, session: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a new session when the scheduler has placed it, or has stored why it is pending."""
    latest = session
    path = f"/sessions/{session['id']}"
    # The session has been created, so the command does not fail because of an error here.
    with contextlib.suppress(BaiError):
        for _ in range(_FIRST_PASS_POLLS):
            if latest["status"] != Status.PENDING or latest["reasons"]:
                break
            latest = await client.get(path, wait=Status.SCHEDULED, timeout=_FIRST_PASS_POLL_SECONDS)
    return latest


def print_created(connection: Connection, session: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a session right after its creation: its status, why it waits, and next commands."""
    if as_json:
        output.print_json(session)
        return
    title = Text(printable(session["name"]), style="bold")
    title.append(f" is {session['status']}", style="not bold")
    _print_next(connection, session, title)


def _print_next(connection: Connection, session: Mapping[str, Any], title: Text) -> None:
    screen = Screen(title)
    if session["status"] == Status.PENDING:
        screen.add("Reason", "\n".join(position_and_reasons(session)[1:]))
        screen.add("Starts", starts_text(session["estimated_start"]))
    if session["status"] == Status.RUNNING and session["type"] != SessionType.BATCH:
        screen.add("Open", connection.address(session["url"]))
    screen.add("Next", " · ".join(next_commands(session)))
    screen.print(output.console())


async def _wait(
    client: Client,
    session: Mapping[str, Any],
    status: Status,
    timeout_seconds: float | None,
    on_update: Callable[[Mapping[str, Any]], None],
    *,
    show_progress: bool,
) -> dict[str, Any]:
    """Poll until the wait is over (see ``wait_for_status``), and return the session.

    Each response is passed to ``on_update``.
    """
    latest = dict(session)
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    if _is_over(latest, status):
        return latest
    async with _open_display(client, show_progress=show_progress) as display:
        last_response = time.monotonic()
        while not _is_over(latest, status):
            await display.show(latest)
            now = time.monotonic()
            poll = display.poll_seconds
            poll_timeout = poll if deadline is None else min(poll, deadline - now)
            if poll_timeout <= 0:
                raise BaiError(
                    f"session {latest['name']} is still {latest['status']} after "
                    f"{timeout_seconds:g} s; check it with: bai session info {latest['name']}",
                    session=latest,
                )
            try:
                latest = await client.get(
                    f"/sessions/{latest['id']}",
                    wait=_polled_status(latest, status).value,
                    timeout=f"{poll_timeout:.1f}",
                    timeout_seconds=poll_timeout + 30,
                )
                last_response = time.monotonic()
                on_update(latest)
            except Unavailable:
                if time.monotonic() - last_response > _MAX_UNAVAILABLE_SECONDS:
                    raise
            # Limit the poll rate if the server responds immediately.
            await asyncio.sleep(max(0.0, now + _MIN_POLL_INTERVAL_SECONDS - time.monotonic()))
    return latest


def _is_over(session: Mapping[str, Any], awaited: Status) -> bool:
    status = Status(session["status"])
    if status is Status.TERMINATING:
        return awaited is Status.TERMINATING
    return status in ENDED or has_reached(status, awaited)


def _polled_status(session: Mapping[str, Any], awaited: Status) -> Status:
    """Return the first status that can end the wait.

    The manager responds as soon as the session has reached or passed it.
    """
    is_passed = has_reached(Status(session["status"]), awaited)
    return Status.TERMINATED if is_passed or awaited in ENDED else awaited


class _Silent:
    """Show no progress."""

    poll_seconds = _SILENT_POLL_SECONDS

    async def show(self, session: Mapping[str, Any]) -> None:
        pass


class _PlainLines:
    """Write a line to standard error when the status or the reason for waiting changes.

    A change of the position or of a number is written at most every 30 s.
    """

    def __init__(self) -> None:
        # The first poll is short, because the scheduler computes the reasons of a new session
        # shortly after its creation.
        self.poll_seconds = _TERMINAL_POLL_SECONDS
        self._is_first = True
        self._text = ""
        self._note = ""
        self._cause: object = None
        self._written_at = 0.0

    async def show(self, session: Mapping[str, Any]) -> None:
        if self._is_first:
            self._is_first = False
            return
        self.poll_seconds = _PLAIN_POLL_SECONDS
        is_pending = session["status"] == Status.PENDING
        parts = position_and_reasons(session)
        text = f"session {printable(session['name'])} "
        text += f"is pending: {' · '.join(parts)}" if is_pending else f"is {' · '.join(parts)}"
        cause = (session["status"], [one.get("check") for one in session.get("reasons") or ()])
        now = time.monotonic()
        is_due = now - self._written_at >= _MIN_SECONDS_BETWEEN_LINES
        if text != self._text and (cause != self._cause or is_due):
            click.echo(text, err=True)
            note = quota_note(session)
            if note and note != self._note:
                click.echo(note, err=True)
            self._note = note
            self._text, self._cause, self._written_at = text, cause, now


class _LiveLine:
    """Show elapsed time, position, reason and remedies on a terminal, redrawn in place."""

    poll_seconds = _TERMINAL_POLL_SECONDS

    def __init__(self, client: Client, width: int) -> None:
        self._client = client
        self._width = width
        self._begin = time.monotonic()
        self._session: Mapping[str, Any] = {}
        self._remedies: list[str] = []
        self._remedies_polled_at = -math.inf

    async def show(self, session: Mapping[str, Any]) -> None:
        self._session = session
        now = time.monotonic()
        if session["status"] != Status.PENDING:
            self._remedies = []
        elif now - self._remedies_polled_at >= _REMEDIES_INTERVAL_SECONDS:
            self._remedies_polled_at = now
            # Remedies are optional: without them, the wait continues.
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
    """Return the text of the live display for a terminal of ``width`` columns."""
    status = session["status"]
    verb = _VERBS.get(status, "Starting")
    text = Text(f"{verb} {units.clock(seconds)}", style="bold")
    for part in position_and_reasons(session):
        if part not in (Status.RUNNING, Status.TERMINATING):
            text.append(f" · {part}", style="not bold")
    if note := quota_note(session):
        text.append(f"\n  {note}", style="not bold")
    effect = "stays queued" if status == Status.PENDING else "is not affected"
    keys = f"Ctrl-C stops watching; the session {effect}"
    sooner = f"sooner with: {' or '.join(remedies[:_MAX_REMEDIES])}" if remedies else ""
    if sooner:
        text.append(f"\n  {sooner}", style="not bold")
    is_one_line = bool(sooner) and len(sooner) + len(_DIVIDER) + len(keys) + 2 <= width
    return text.append((_DIVIDER if is_one_line else "\n  ") + keys, style="not bold dim")


@contextlib.asynccontextmanager
async def _open_display(
    client: Client, *, show_progress: bool
) -> AsyncIterator[_Silent | _PlainLines | _LiveLine]:
    console = output.progress_console()
    if not console.is_terminal:
        yield _PlainLines() if show_progress else _Silent()
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
