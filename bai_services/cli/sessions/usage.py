"""`bai session usage`: the resource usage of sessions over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.lifecycle import Status

from .. import output, units
from ..command import Choice, Connection, connected, example, json_option, segment

PERIODS = {"15min": 900, "1h": 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400}
DEFAULT_PERIOD = "1h"
_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = " "
MAX_WIDTH = 30
_COLUMNS = ("metric", "course", "last", "mean", "highest")
_RATES = {
    "net_rx_bytes_per_second": "network in",
    "net_tx_bytes_per_second": "network out",
    "io_read_bytes_per_second": "disk read",
    "io_write_bytes_per_second": "disk write",
}
_TRENDS = {"cpu_percent": "CPU", "mem_percent": "memory", "device_percent": "devices"}

Values = Sequence[float | None]
Format = Callable[[float], str]


@click.command(
    epilog=example("bai session usage", "bai session usage my-lab --period 24h --kernel sub1")
)
@click.argument("name", required=False)
@click.option(
    "--period",
    type=Choice(list(PERIODS)),
    help=f"Length of the period, which ends now. Default: {DEFAULT_PERIOD}.",
)
@click.option("--kernel", help=f"Host name of the kernel. Default: {MAIN_HOST}.")
@json_option
@connected
async def usage(
    connection: Connection,
    name: str | None,
    *,
    period: str | None,
    kernel: str | None,
    as_json: bool,
) -> None:
    """Show the usage of a session over time.

    Without NAME, show the last 15 minutes of your newest running sessions.
    """
    if name is None:
        if period is not None or kernel is not None:
            raise click.UsageError("--period and --kernel need the NAME of a session")
        await _show_trends(connection, as_json=as_json)
        return
    period, kernel = period or DEFAULT_PERIOD, kernel or MAIN_HOST
    path = f"/sessions/{segment(name)}/usage-history"
    found = await connection.client.get(path, period=PERIODS[period], kernel=kernel)
    if as_json:
        output.print_json(found)
        return
    rows = _rows(found)
    if not rows:
        output.note(f"no usage was measured in the last {period}")
        return
    output.print_table(rows, _COLUMNS)


async def _show_trends(connection: Connection, *, as_json: bool) -> None:
    trends = (await connection.client.get("/usage-trends"))["items"]
    if as_json:
        output.print_json(trends)
        return
    if not trends:
        output.note("you have no running sessions; start one with: bai session create NAME")
        return
    running = connection.client.items("/sessions", status=Status.RUNNING.value)
    names = {session["id"]: session["name"] async for session in running}
    output.print_table(
        [
            {
                "session": names.get(trend["session_id"], trend["session_id"]),
                **{title: _percent(trend[key]) for key, title in _TRENDS.items()},
            }
            for trend in trends
        ],
        ("session", *_TRENDS.values()),
    )


def _percent(values: Values) -> str:
    """Return a percentage series as a line of blocks and its last value."""
    last = next((value for value in reversed(values) if value is not None), None)
    return "" if last is None else f"{sparkline(values, 100.0)} {last:.0f} %"


def _rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    metrics = found["metrics"]
    rows = [
        _row("CPU cores", metrics["cpu_cores"], _cores, found["cpu_limit_cores"]),
        _row("memory", metrics["mem_bytes"], _size, found["mem_limit_bytes"]),
    ]
    for device in found["devices"]:
        label = f"{device['model']} {device['id']}"
        rows.append(_row(f"{label} busy", device["utilization_percent"], _whole_percent, 100.0))
        limit = device["limit_bytes"]
        rows.append(_row(f"{label} memory", device["memory_bytes"], _size, limit))
    rows += [_row(title, metrics[key], _rate) for key, title in _RATES.items()]
    return [row for row in rows if row]


def _row(
    label: str, values: Values, format_value: Format, limit: float | None = None
) -> dict[str, str] | None:
    """Return a table row, None if no value was measured; ``limit`` None stands for no limit."""
    measured = [value for value in values if value is not None]
    if not measured:
        return None
    highest = max(measured)
    return {
        "metric": f"{label} of {format_value(limit)}" if limit else label,
        "course": sparkline(values, limit or highest),
        "last": format_value(measured[-1]),
        "mean": format_value(sum(measured) / len(measured)),
        "highest": format_value(highest),
    }


def sparkline(values: Values, full: float) -> str:
    """Return values as a line of block characters.

    ``full`` is shown as the highest block, a missing value as a space. A series longer than
    ``MAX_WIDTH`` is reduced: each character is the mean of several values.
    """
    size = max(1, -(-len(values) // MAX_WIDTH))
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return "".join(_block(group, full) for group in groups)


def _block(group: Values, full: float) -> str:
    measured = [value for value in group if value is not None]
    if not measured:
        return _GAP
    share = sum(measured) / len(measured) / full if full else 0.0
    return _BLOCKS[min(len(_BLOCKS) - 1, max(0, int(share * len(_BLOCKS))))]


def _cores(value: float) -> str:
    return f"{value:.3g}"


def _size(value: float) -> str:
    return units.size(int(value))


def _rate(value: float) -> str:
    return f"{units.size(int(value))}/s"


def _whole_percent(value: float) -> str:
    return f"{value:.0f} %"
