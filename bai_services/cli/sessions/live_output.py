"""`bai session top` and `events`, and `logs --follow`: usage, status changes and logs, live."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bai_services.core.resources import format_amount
from bai_services.core.sessions.lifecycle import ENDED, Status

from .. import output
from ..command import Connection, connected, example, json_option, segment
from ..text import json_text

_POLL_INTERVAL_SECONDS = 2.0
# Number of characters at the end of the printed log that are searched for in the next response.
_TAIL_CHARACTERS = 2000
COLUMNS = ("session", "kernel", "cpu", "memory", "read", "written", "received", "sent", "devices")
_BYTES = {
    "memory": "mem_bytes",
    "read": "io_read_bytes",
    "written": "io_write_bytes",
    "received": "net_rx_bytes",
    "sent": "net_tx_bytes",
}


@click.command(epilog=example("bai session top", "bai session top my-lab --once"))
@click.argument("names", metavar="[NAME…]", nargs=-1)
@click.option("--once", is_flag=True, help="Print the usage once and exit. Implied by --json.")
@json_option
@connected
async def top(connection: Connection, *, names: tuple[str, ...], once: bool, as_json: bool) -> None:
    """Show the resource usage of running sessions.

    On a terminal, the usage is updated every 2 seconds until Ctrl-C.
    """
    if as_json:
        output.print_json({"items": [item async for item in _usages(connection, names)]})
        return
    console = output.console()
    if once or not console.is_terminal:
        output.print_table([row async for row in _rows(connection, names)], COLUMNS)
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_table([row async for row in _rows(connection, names)]), refresh=True)
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)


@click.command(epilog=example("bai session events my-lab --until-end"))
@click.argument("name", required=False)
@click.option("--until-end", is_flag=True, help="Exit when the session NAME has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
@connected
async def events(
    connection: Connection, *, name: str | None, until_end: bool, as_json: bool
) -> None:
    """Print the events of all sessions that you may see, or of session NAME, until Ctrl-C."""
    if until_end and name is None:
        raise click.UsageError("--until-end needs the NAME of a session")
    query = {}
    if name is not None:
        session = await connection.client.get(f"/sessions/{segment(name)}")
        query["session"] = session["id"]
    while True:
        async with connection.client.stream("/events", **query) as response:
            # Read the status only when the stream is open, because the stream does not report
            # earlier events.
            if until_end and (end := await _end_event(connection, query["session"])):
                _print_event(end, as_json=as_json)
                return
            async for event in session_events(response.aiter_lines()):
                _print_event(event, as_json=as_json)
                if until_end and event["status"] in ENDED:
                    return
        # The manager restarted, or a proxy closed the long-lived response: reconnect.
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)


async def _end_event(connection: Connection, session_id: str) -> dict[str, Any] | None:
    """Return the event of a session that has already ended, None for a live session."""
    session = await connection.client.get(f"/sessions/{session_id}")
    if session["status"] not in ENDED:
        return None
    return {"kind": "status", "session_id": session_id, "status": session["status"]}


async def follow_log(connection: Connection, name: str, query: Mapping[str, Any]) -> None:
    """Print a log and all later output until the session ends; ``query`` selects the log."""
    printed = ""
    while True:
        response = await connection.client.get(f"/sessions/{segment(name)}/logs", **query)
        output.print_log(new_text(printed, response["log"]))
        sys.stdout.flush()
        printed = response["log"]
        if not response["is_live"]:
            session = await connection.client.get(f"/sessions/{segment(name)}")
            if session["status"] in ENDED:
                return
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)


def new_text(before: str, now: str) -> str:
    """Return the text that was added to a log since ``before``.

    The beginning of the log may have been cut off in the meantime.
    """
    if now.startswith(before):
        return now[len(before) :]
    tail = before[-_TAIL_CHARACTERS:]
    position = now.rfind(tail)
    return now if position < 0 else now[position + len(tail) :]


async def session_events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """Yield the events that concern a session, from the lines of an event stream."""
    async for line in lines:
        # Events without a session concern folders or the connection.
        if line.startswith("data:") and (event := json.loads(line[5:])).get("session_id"):
            yield event


def _print_event(event: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        text = json_text(event)
    else:
        at = time.strftime("%H:%M:%S")
        text = f"{at} {event['session_id']} {event['kind']} {output.cell(event['status'])}"
    click.echo(text)
    sys.stdout.flush()


async def _usages(connection: Connection, names: tuple[str, ...]) -> AsyncIterator[dict[str, Any]]:
    if names:
        sessions = [await connection.client.get(f"/sessions/{segment(name)}") for name in names]
    else:
        query = {"status__in": Status.RUNNING.value}
        sessions = [item async for item in connection.client.items("/sessions", **query)]
    for session in sessions:
        usage = await connection.client.get(f"/sessions/{session['id']}/usage")
        yield {"session": session["name"], "status": session["status"], **usage}


async def _rows(connection: Connection, names: tuple[str, ...]) -> AsyncIterator[dict[str, str]]:
    async for session in _usages(connection, names):
        for number, kernel in enumerate(session["kernels"]):
            usage = kernel.get("usage") or {}
            sizes = {
                column: format_amount("mem", int(usage[field])) if field in usage else ""
                for column, field in _BYTES.items()
            }
            yield {
                "session": session["session"],
                "kernel": str(kernel.get("hostname") or number),
                "cpu": "" if usage.get("cpu_cores") is None else f"{usage['cpu_cores']:.2f}",
                **sizes,
                "devices": " ".join(_devices(usage.get("devices") or ())),
            }


def _devices(devices: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{device.get('id', '')} {_percent(device.get('utilization_percent'))}".strip()
        for device in devices
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def _table(rows: list[dict[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column.upper())
    for row in rows:
        table.add_row(*(Text(output.cell(row[column])) for column in COLUMNS))
    return table
