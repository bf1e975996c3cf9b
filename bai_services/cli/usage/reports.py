"""Reports of `bai usage`, `bai service` and `bai admin`, and the prices of slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from bai_services.core.usage.model import HOUR, OF_ONE_OWNER, Dimension, EndpointDimension
from bai_services.core.usage.periods import Every

from .. import output, units
from ..command import (
    Choice,
    Connection,
    command_group,
    connected,
    example,
    json_option,
    with_options,
)

# By importance: on a narrow terminal, the last columns are omitted.
_COLUMNS = ("start", "name", "slot", "allocated", "used", "wasted", "waited", "cost", "energy")
_ENDPOINT_COLUMNS = ("start", "name", "owner", "requests", "input_tokens", "output_tokens")
_NOT_MEASURED, _NO_PRICE = "not measured", "no price"
# Names of the groups with an empty name.
_NO_NAMES = {Dimension.DEVICE_MODEL.value: "(no device)", Dimension.IMAGE.value: "(no image)"}
_JOULES_PER_KWH = 3_600_000
# Texts for requests without a token that the owner created, by the token's name in reports.
TOKEN_TEXTS = {"": "(chat page)", "*": "(no token)"}
_FORMATS = {Every.HOUR: "%Y-%m-%d %H:%M", Every.DAY: "%Y-%m-%d", Every.MONTH: "%Y-%m"}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _period_options(*intervals: Every) -> Callable[[_Command], _Command]:
    """Add the options for the period of a report and for its intervals."""

    def add(command: _Command) -> _Command:
        return with_options(
            command,
            click.option(
                "--since", metavar="DATE", help="Start of the period. Default: 30 days ago."
            ),
            click.option("--until", metavar="DATE", help="End of the period. Default: now."),
            click.option(
                "--every",
                type=Choice([every.value for every in intervals]),
                default=Every.PERIOD.value,
                show_default=True,
                help="Length of the intervals.",
            ),
        )

    return add


_limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of groups: those with the largest usage.",
)


def _report_options(command: _Command) -> _Command:
    """Add the options of a report."""
    options = (
        _period_options(*Every),
        click.option(
            "--time-zone", default="UTC", show_default=True, help="Zone of days and months."
        ),
        click.option("--slot", help="Only this slot, for example cuda.shares or sessions."),
        _limit_option,
    )
    return with_options(command, *options)


def _by_option(default: Dimension) -> Callable[[_Command], _Command]:
    return click.option(
        "--by",
        type=Choice([dimension.value for dimension in Dimension]),
        default=default.value,
        show_default=True,
        help="Group the usage.",
    )


@click.command(epilog=example("bai usage", "bai usage --by image --every day --slot cpu"))
@_by_option(Dimension.TOTAL)
@_report_options
@json_option
@connected
async def usage(connection: Connection, *, as_json: bool, **query: Any) -> None:
    """Report your usage of resources, in hours of a core, GiB, device or session.

    USED is the mean utilization of the measured part, WASTED the idle hours, and WAITED the time
    in the queue.
    """
    await _report_usage(connection, {**query, "own": "true"}, as_json=as_json)


@click.command(
    "usage",
    epilog=example(
        "bai admin usage", "bai admin usage --by project --every month --time-zone Asia/Seoul"
    ),
)
@_by_option(Dimension.USER)
@click.option("--user", metavar="USER", help="Only the usage of this user.")
@_report_options
@json_option
@connected
async def admin_usage(connection: Connection, *, as_json: bool, **query: Any) -> None:
    """Report the usage of all users that you may see; see `bai usage --help`."""
    await _report_usage(connection, query, as_json=as_json)


async def _report_usage(connection: Connection, query: Mapping[str, Any], *, as_json: bool) -> None:
    report = await _read_report(connection, "/usage", query)
    if as_json:
        output.print_json(report)
        return
    is_free = all(row["cost"] is None for row in report["rows"])
    columns = [column for column in _COLUMNS if column != "cost" or not is_free]
    _print_report(report, columns, _usage_texts, empty="no usage in this period")


async def _read_report(
    connection: Connection, path: str, query: Mapping[str, Any]
) -> dict[str, Any]:
    values = {name: value for name, value in query.items() if value is not None}
    return dict(await connection.client.get(path, **values))


def _print_report(
    report: Mapping[str, Any],
    columns: Sequence[str],
    texts: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]],
    *,
    empty: str,
) -> None:
    """Print the rows as ``texts`` shows them, without columns that are the same in all rows."""
    hidden = {"start"} if report["every"] == Every.PERIOD else set()
    if report["by"] == Dimension.TOTAL:
        hidden.add("name")
    shown = [column for column in columns if column not in hidden]
    output.print_table([texts(row, report) for row in report["rows"]], shown, empty=empty)
    groups = len({row["key"] for row in report["rows"]})
    if groups < report["groups"]:
        output.note(f"{groups} of {report['groups']} groups; show more with --limit")


def _usage_texts(row: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, str]:
    start = datetime.fromisoformat(row["start"]).astimezone(ZoneInfo(report["time_zone"]))
    measured, energy, cost = row["measured_seconds"], row["energy_joules"], row["cost"]
    return {
        "start": start.strftime(_FORMATS.get(Every(report["every"]), "%Y-%m-%d")),
        "name": row["name"] or _NO_NAMES.get(report["by"], "-"),
        "slot": row["slot"],
        "allocated": _hours(row["allocated_seconds"]),
        "used": f"{row['used_seconds'] / measured:.0%}" if measured else _NOT_MEASURED,
        "wasted": _hours(row["wasted_seconds"]),
        "waited": "" if row["waited_seconds"] is None else _hours(row["waited_seconds"]),
        "cost": _NO_PRICE if cost is None else units.money(cost, report["currency"]),
        "energy": _NOT_MEASURED if energy is None else f"{energy / _JOULES_PER_KWH:.2f} kWh",
    }


def _hours(seconds: float | None) -> str:
    return _NOT_MEASURED if seconds is None else f"{seconds / HOUR:.2f} h"


def _endpoint_options(command: _Command) -> _Command:
    """Add the options of a report about endpoints."""
    options = (
        click.option(
            "--by",
            type=Choice([dimension.value for dimension in EndpointDimension]),
            default=EndpointDimension.ENDPOINT.value,
            show_default=True,
            help="Group the requests; *user* is the owner of the endpoint.",
        ),
        click.option("--endpoint", metavar="NAME", help="Only this endpoint."),
        _period_options(Every.DAY, Every.MONTH, Every.PERIOD),
        _limit_option,
    )
    return with_options(command, *options)


@click.command(
    "usage-report",
    short_help="Report the usage of your endpoints.",
    epilog=example("bai service usage-report", "bai service usage-report --by token --every day"),
)
@_endpoint_options
@json_option
@connected
async def endpoint_usage(connection: Connection, *, as_json: bool, **query: Any) -> None:
    """Report the requests of your endpoints, and the tokens that models read and wrote.

    Days are those of UTC.
    """
    await _report_endpoints(connection, {**query, "own": "true"}, as_json=as_json)


@click.command(
    "endpoint-usage",
    epilog=example("bai admin endpoint-usage", "bai admin endpoint-usage --by project --every day"),
)
@click.option("--user", metavar="USER", help="Only endpoints of this user.")
@_endpoint_options
@json_option
@connected
async def admin_endpoint_usage(connection: Connection, *, as_json: bool, **query: Any) -> None:
    """Report the requests of all endpoints that you may see, and the tokens of their models."""
    await _report_endpoints(connection, query, as_json=as_json)


async def _report_endpoints(
    connection: Connection, query: Mapping[str, Any], *, as_json: bool
) -> None:
    report = await _read_report(connection, "/endpoint-usage", query)
    if as_json:
        output.print_json(report)
        return
    has_owner = report["by"] in OF_ONE_OWNER
    columns = [column for column in _ENDPOINT_COLUMNS if has_owner or column != "owner"]
    _print_report(report, columns, _endpoint_texts, empty="no requests in this period")


def _endpoint_texts(row: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    start = row["start"][: 7 if report["every"] == Every.MONTH else 10]
    name = _token_text(row["name"]) if report["by"] == EndpointDimension.TOKEN else row["name"]
    return {**row, "start": start, "name": name}


def _token_text(name: str) -> str:
    """Return ENDPOINT/TOKEN, with TOKEN replaced by its text in ``TOKEN_TEXTS``, if any."""
    endpoint, _, token = name.rpartition("/")
    return f"{endpoint}/{TOKEN_TEXTS.get(token, token)}"


@command_group(epilog=example("bai admin price list"))
def price() -> None:
    """Set the prices from which costs in usage reports are computed."""


@price.command("list", epilog=example("bai admin price list"))
@json_option
@connected
async def list_prices(connection: Connection, *, as_json: bool) -> None:
    """List the prices of one core, GiB, device or session for one hour."""
    _show(await connection.client.get("/usage-prices"), as_json=as_json)


@price.command(
    "set",
    epilog=example(
        "bai admin price set cpu=0.02 cuda.device=2.5 gold/cuda.device=4 --currency EUR"
    ),
)
@click.argument("prices", nargs=-1, metavar="[GROUP/]SLOT=PRICE...")
@click.option("--currency", default="", help="Text that is shown after costs.")
@json_option
@connected
async def set_prices(
    connection: Connection, prices: tuple[str, ...], *, currency: str, as_json: bool
) -> None:
    """Replace all prices; without PRICES, remove them.

    A price without GROUP applies to all resource groups that have no specific price.
    """
    body = {"currency": currency, "prices": [_price(text) for text in prices]}
    _show(await connection.client.put("/usage-prices", body), as_json=as_json)


def _price(text: str) -> dict[str, Any]:
    target, _, number = text.rpartition("=")
    group, _, slot = target.rpartition("/")
    try:
        per_hour = float(number)
        if not slot or not math.isfinite(per_hour):
            raise ValueError(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a price; write for example cpu=0.02") from None
    return {"resource_group": group or None, "slot": slot, "per_hour": per_hour}


def _show(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    rows = [
        {
            "resource_group": price["resource_group"] or "all",
            "slot": price["slot"],
            "per_hour": f"{price['per_hour']:g} {found['currency']}".strip(),
        }
        for price in found["prices"]
    ]
    empty = "no prices; set them with: bai admin price set cpu=0.02"
    output.print_table(rows, ("resource_group", "slot", "per_hour"), empty=empty)
