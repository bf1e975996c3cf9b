"""`bai admin group try-policy`: replay the history of a resource group under other policies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from bai_services.client import Client
from bai_services.core.durations import parse_duration
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.scheduling.placement_options import Policy
from bai_services.core.scheduling.queue.model import Backfill, Order

from .. import output, units
from ..command import Choice, Connection, connected, example, json_option, segment
from ..screen import wrapped

POLL_SECONDS = 0.5
# Maximum number of table rows per kind (priority, project, user); --json prints all rows.
MAX_ROWS = 5
_NONE = "-"
_SCHEDULERS = tuple(each.value for each in Order)
_PLACEMENTS = tuple(each.value for each in Policy)
_BACKFILLS = tuple(each.value for each in Backfill)
_KINDS = (("priority", "by_priority"), ("project", "by_project"), ("user", "by_user"))


@click.command(
    epilog=example(
        "bai admin group try-policy gpu --placement spread --since 7d",
        "bai admin group try-policy gpu --scheduler drf --scheduler fair-share --since 2030-01-01",
    )
)
@click.argument("group")
@click.option(
    "--scheduler", "schedulers", type=Choice(_SCHEDULERS), multiple=True,
    help="Order of the queue: fifo, lifo, drf or fair-share. Default: the current one. Repeat an "
    "option to try two policies.",
)  # fmt: skip
@click.option(
    "--placement", "placements", type=Choice(_PLACEMENTS), multiple=True,
    help="Placement: priced, fgd, best-fit, pack, spread, round-robin or random. May be repeated.",
)  # fmt: skip
@click.option(
    "--backfill", "backfills", type=Choice(_BACKFILLS), multiple=True,
    help="Backfill: off, aggressive or reserving. May be repeated.",
)  # fmt: skip
@click.option(
    "--since", metavar="TIME", default="7d", show_default=True,
    help="Start of the period: a duration before now, or a date or time such as 2030-01-31T09:00.",
)  # fmt: skip
@click.option("--until", metavar="TIME", help="End of the period. Default: now.")
@json_option
@connected
async def try_policy(
    connection: Connection,
    group: str,
    *,
    schedulers: tuple[str, ...],
    placements: tuple[str, ...],
    backfills: tuple[str, ...],
    since: str,
    until: str | None,
    as_json: bool,
) -> None:
    """Replay the history of a resource group under other policies.

    The command changes nothing. It compares the history, the current policy and up to two
    others: waiting times, utilization of the devices, and the number of sessions that would
    have started earlier or later. The difference between the history and the current policy shows
    the inaccuracy of the replay.
    """
    now = datetime.now(UTC)
    body: dict[str, Any] = {
        "since": _time(since, "--since", now).isoformat(),
        "policies": [_policy(*part) for part in zip_longest(schedulers, placements, backfills)],
    }
    if until is not None:
        body["until"] = _time(until, "--until", now).isoformat()
    path = f"/resource-groups/{segment(group)}/replays"
    client = connection.client
    started = await client.post(path, body)
    try:
        finished = await _finished(client, f"{path}/{started['id']}")
    except asyncio.CancelledError:
        await client.delete(f"{path}/{started['id']}")
        raise
    if as_json:
        output.print_json(finished)
        return
    _print(finished["comparison"])


def _policy(scheduler: str | None, placement: str | None, backfill: str | None) -> dict[str, Any]:
    options = {"placement": placement, "backfill": backfill}
    given = {name: value for name, value in options.items() if value is not None}
    return {"scheduler_opts": given} | ({"scheduler": scheduler} if scheduler else {})


def _time(text: str, option: str, now: datetime) -> datetime:
    """Return the UTC time for a time or a duration before ``now``.

    A time without a zone is in the local time zone.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return now - timedelta(seconds=parse_duration(text, option))
    except InvalidRequest:
        raise InvalidRequest(
            f"{text[:40]!r} is neither a duration such as 7d nor a time such as 2030-01-31T09:00",
            field=option,
        ) from None


async def _finished(client: Client, path: str) -> dict[str, Any]:
    """Wait for the end of a replay and return it; show its progress on a terminal.

    Raises
    ------
    BaiError
        If the replay failed or was cancelled.
    """
    console = output.progress_console()
    with Progress(
        TextColumn("replaying"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bar = progress.add_task("", total=1.0)
        while True:
            response: dict[str, Any] = await client.get(path)
            replay = response["replay"]
            progress.update(bar, completed=replay["progress"])
            if replay["status"] != "running":
                break
            await asyncio.sleep(POLL_SECONDS)
    if response["comparison"] is None:
        raise BaiError(replay["error"] or f"the replay was {replay['status']}")
    return response


def _print(comparison: Mapping[str, Any]) -> None:
    reports: Sequence[Mapping[str, Any]] = comparison["reports"]
    columns = ["history", "current", *(f"policy_{n}" for n in range(1, len(reports) - 1))]
    rows = [
        {"measure": label, **dict(zip(columns, texts, strict=True))}
        for label, texts in _measures(reports)
    ]
    output.print_table(rows, ("measure", *columns))
    print()
    output.print_table(_group_rows(reports, columns), ("mean_wait_of", *columns))
    width = output.console().width
    for number, report in enumerate(reports[1:]):
        label = f"policy {number}" if number else "current"
        rules = f"{report['scheduler']}, {report['placement']}, {report['backfill']}"
        output.note(f"{label}: {rules}")
    output.note("limitations of the replay:")
    for gap in comparison["gaps"]:
        first, *rest = wrapped(f"{gap['message']} ({gap['count']})", width - 2)
        output.note("\n".join((f"- {first}", *(f"  {line}" for line in rest))))


def _measures(reports: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    waits = [report["wait_seconds"] for report in reports]
    measures = [
        ("sessions", [str(r["sessions"]) for r in reports]),
        ("started", [str(r["started"]) for r in reports]),
        ("median wait", [units.duration(w["median"]) for w in waits]),
        ("95th percentile wait", [units.duration(w["p95"]) for w in waits]),
        ("maximum wait", [units.duration(w["max"]) for w in waits]),
        ("makespan", [units.duration(r["makespan_seconds"]) for r in reports]),
    ]
    if any(report["preemptions"] for report in reports):
        measures.append(("preemptions", [str(r["preemptions"]) for r in reports]))
        measures.append(("lost run time", [units.duration(r["lost_seconds"]) for r in reports]))
    for index, used in enumerate(reports[0]["utilization"]):
        percents = [f"{r['utilization'][index]['mean_percent']:g}" for r in reports]
        measures.append((f"{used['resource']} utilization, %", percents))
    measures.append(("fragmentation, %", [f"{r['fragmentation_percent']:g}" for r in reports]))
    for name in ("history", "current"):
        for verb in ("earlier", "later"):
            shifts = [r[f"than_{name}"] for r in reports]
            texts = [_NONE if shift is None else str(shift[verb]) for shift in shifts]
            measures.append((f"{verb} than {name}", texts))
    return measures


def _group_rows(
    reports: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> list[dict[str, str]]:
    rows = []
    for kind, field in _KINDS:
        by_key = [{(g["domain"], g["name"]): g for g in report[field]} for report in reports]
        for group in reports[0][field][:MAX_ROWS]:
            key = (group["domain"], group["name"])
            label = f"{kind} {'/'.join(part for part in key if part)}"
            texts = [_mean_wait(groups.get(key)) for groups in by_key]
            rows.append(
                {
                    "mean_wait_of": label if group["name"] else f"{kind}s of other domains",
                    **dict(zip(columns, texts, strict=True)),
                }
            )
    return rows


def _mean_wait(group: Mapping[str, Any] | None) -> str:
    return _NONE if group is None else units.duration(group["wait_seconds"]["mean"])
