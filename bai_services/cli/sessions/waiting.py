"""Waiting for a session, with what it waits for shown on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bai_services.client import Client
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.sessions.lifecycle import ENDED, Status

from .. import output
from ..text import printable

# A poll on a terminal returns soon, to show progress; without one it may stay long.
_SHOWN_POLL_SECONDS = 1.0
_TOLD_POLL_SECONDS = 5.0
_HIDDEN_POLL_SECONDS = 20.0
_MIN_PAUSE_SECONDS = 0.1
# Lines for a changed position or amount come no more often.
_MIN_SECONDS_BETWEEN_LINES = 30.0
# A manager that restarts is back by then.
_PATIENCE_SECONDS = 30.0


async def wait_for_status(
    client: Client,
    session: Mapping[str, Any],
    status: Status,
    timeout_seconds: float | None,
    *,
    tells: bool = False,
) -> dict[str, Any]:
    """Return the session once it is ``status`` or has ended.

    With ``tells``, what it waits for is written line by line to a standard error that is no
    terminal. A manager that is away for less than half a minute is waited for.

    Raises
    ------
    BaiError
        If ``timeout_seconds`` pass first; the session goes on as it is.
    Unavailable
        If the manager stays away.
    """
    latest = [session]
    try:
        return await _wait(client, latest, status, timeout_seconds, tells=tells)
    except asyncio.CancelledError:
        # Ctrl-C: asyncio.run cancels the command before it raises KeyboardInterrupt.
        click.echo(interrupted(latest[-1], status), err=True)
        raise


def interrupted(session: Mapping[str, Any], status: Status) -> str:
    """Return what becomes of a session for which nobody waits any more."""
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


async def _wait(
    client: Client,
    latest: list[Mapping[str, Any]],
    status: Status,
    timeout_seconds: float | None,
    *,
    tells: bool,
) -> dict[str, Any]:
    """As ``wait_for_status``; appends to ``latest`` each answer that comes."""
    session = latest[-1]
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    found = dict(session)
    async with _shown(f"session {found['name']}") as show:
        tell = _Told() if tells and not show.is_visible else None
        # Also before the first line: a new session has its reasons a moment later.
        poll = _SHOWN_POLL_SECONDS if show.is_visible or tell else _HIDDEN_POLL_SECONDS
        last_answer = time.monotonic()
        while found["status"] != status and found["status"] not in ENDED:
            show(found)
            now = time.monotonic()
            left = poll if deadline is None else min(poll, deadline - now)
            if left <= 0:
                raise BaiError(
                    f"session {found['name']} is still {found['status']} after "
                    f"{timeout_seconds:g} s; it goes on: bai session info {found['name']}",
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
                if tell and found["status"] != status and found["status"] not in ENDED:
                    tell(found)
                    poll = _TOLD_POLL_SECONDS
            except Unavailable:
                if time.monotonic() - last_answer > _PATIENCE_SECONDS:
                    raise
            # Bounds the rate also when answers come at once.
            await asyncio.sleep(max(0.0, now + _MIN_PAUSE_SECONDS - time.monotonic()))
        show(found)
    return found


class _Line:
    """The line that shows one session's way; invisible unless standard error is a terminal."""

    def __init__(self, progress: Progress, task: TaskID, what: str) -> None:
        self._progress = progress
        self._task = task
        self._what = what
        self.is_visible = progress.console.is_terminal

    def __call__(self, session: Mapping[str, Any]) -> None:
        percent = (session.get("progress") or {}).get("percent")
        self._progress.update(
            self._task,
            description=f"{self._what} {stage_of(session)}",
            total=100 if percent is not None else None,
            completed=percent or 0,
        )


class _Told:
    """Writes to standard error what a session waits for, when that has changed."""

    def __init__(self) -> None:
        self._text = ""
        self._cause: object = None
        self._at = 0.0

    def __call__(self, session: Mapping[str, Any]) -> None:
        state, *parts = _parts(session)
        says = f"is {state}" if state != Status.PENDING else "waits"
        name = printable(str(session["name"]))
        text = f"session {name} {says}" + (f": {' · '.join(parts)}" if parts else "")
        reasons = [reason.get("check") for reason in session.get("reasons") or ()]
        cause, now = (state, reasons), time.monotonic()
        is_late = now - self._at >= _MIN_SECONDS_BETWEEN_LINES
        if text != self._text and (cause != self._cause or is_late):
            click.echo(text, err=True)
            self._text, self._cause, self._at = text, cause, now


@contextlib.asynccontextmanager
async def _shown(what: str) -> AsyncIterator[_Line]:
    console = output.progress_console()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as p:
        yield _Line(p, p.add_task(what, total=None), what)


def stage_of(session: Mapping[str, Any]) -> str:
    """Return in one line how far a session is and what it waits for."""
    return " · ".join(_parts(session))


def _parts(session: Mapping[str, Any]) -> list[str]:
    """Return the status of a session and what it waits for."""
    parts = [str(session["status"])]
    if (position := session.get("queue_position")) is not None:
        parts.append(f"number {position} in the queue")
    parts += [
        str(reason.get("message", ""))
        for reason in session.get("reasons") or ()
        if not reason.get("passed")
    ]
    progress = session.get("progress") or {}
    if progress.get("message") or progress.get("stage"):
        parts.append(str(progress.get("message") or progress["stage"]))
    return [printable(part) for part in parts if part]
