"""`bai session top` and `events`: what sessions use and do, as it happens."""

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

_STEP_SECONDS = 2.0
# So much of a log's end is looked for in what comes next.
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
@click.option("--once", is_flag=True, help="Print once and end; so it is with --json too.")
@json_option
@connected
async def top(connection: Connection, *, names: tuple[str, ...], once: bool, as_json: bool) -> None:
    """Show what running sessions use now, again and again until Ctrl-C."""
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
            await asyncio.sleep(_STEP_SECONDS)


@click.command(epilog=example("bai session events my-lab --until-end"))
@click.argument("name", required=False)
@click.option("--until-end", is_flag=True, help="End when the session has; needs NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
@connected
async def events(
    connection: Connection, *, name: str | None, until_end: bool, as_json: bool
) -> None:
    """Print what happens to your sessions, or to NAME, until Ctrl-C."""
    if until_end and name is None:
        raise click.UsageError("--until-end needs a session")
    query = {}
    if name is not None:
        found = await connection.client.get(f"/sessions/{segment(name)}")
        query["session"] = found["id"]
    while True:
        async with connection.client.stream("/events", **query) as answer:
            # Asked only now: of an end from here on the stream tells.
            if until_end and (end := await _end_of(connection, query["session"])):
                _print_change(end, as_json=as_json)
                return
            async for change in _changes(answer.aiter_lines()):
                _print_change(change, as_json=as_json)
                if until_end and change["status"] in ENDED:
                    return
        # The manager was started anew, or something on the way ended a long answer.
        await asyncio.sleep(_STEP_SECONDS)


async def _end_of(connection: Connection, session_id: str) -> dict[str, Any] | None:
    """Return the end of a session as an event would tell it, None while it has not ended."""
    found = await connection.client.get(f"/sessions/{session_id}")
    if found["status"] not in ENDED:
        return None
    return {"kind": "status", "session_id": session_id, "status": found["status"]}


async def follow_log(connection: Connection, name: str, query: Mapping[str, Any]) -> None:
    """Print a log, as ``query`` asks for it, and what comes to it until the session has ended."""
    shown = ""
    while True:
        answer = await connection.client.get(f"/sessions/{segment(name)}/logs", **query)
        click.echo(added(shown, answer["log"]), nl=False)
        sys.stdout.flush()
        shown = answer["log"]
        if not answer["is_live"]:
            found = await connection.client.get(f"/sessions/{segment(name)}")
            if found["status"] in ENDED:
                return
        await asyncio.sleep(_STEP_SECONDS)


def added(before: str, now: str) -> str:
    """Return what a log has more than before; its beginning may have been cut off meanwhile."""
    if now.startswith(before):
        return now[len(before) :]
    end = before[-_TAIL_CHARACTERS:]
    place = now.rfind(end)
    return now if place < 0 else now[place + len(end) :]


async def _changes(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    async for line in lines:
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))


def _print_change(change: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(change, ensure_ascii=False)
    else:
        at = time.strftime("%H:%M:%S")
        text = f"{at} {change['session_id']} {change['kind']} {output.cell(change['status'])}"
    click.echo(text)
    sys.stdout.flush()


async def _usages(connection: Connection, names: tuple[str, ...]) -> AsyncIterator[dict[str, Any]]:
    if names:
        found = [await connection.client.get(f"/sessions/{segment(name)}") for name in names]
    else:
        query = {"status__in": Status.RUNNING.value}
        found = [item async for item in connection.client.items("/sessions", **query)]
    for session in found:
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
