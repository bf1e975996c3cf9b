"""`bai schedule`: times at which sessions start and stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from bai_services.core.sessions.schedules.records import MAX_CATCH_UP_MINUTES, Overlap

from .. import output
from ..command import (
    Choice,
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
    with_options,
)
from .spec_options import request_fields, request_text, spec_options

COLUMNS = ("name", "start", "stop", "time_zone", "next_start", "last_status", "last_reason")
_RUN_COLUMNS = ("due_at", "status", "session_id", "stops_at", "reason")
_NONE = "none"
_NULLABLE = ("stop", "valid_from", "valid_until", "template")
# Options that are fields of the schedule; the others are fields of its sessions.
_FIELDS = (*_NULLABLE, "time_zone", "catch_up_minutes", "overlap")

_Command = TypeVar("_Command", bound=Callable[..., Any])


@command_group()
def schedule() -> None:
    """Start and stop sessions at set times.

    A time is a rule: days and times ('mon-fri 08:00', 'daily 09:30,14:00') or a cron
    expression ('0 8 * * 1-5').
    """


def _time_options(command: _Command) -> _Command:
    options = (
        click.option("--stop", metavar="RULE", help="When to stop the sessions. Default: never."),
        click.option(
            "--time-zone", metavar="NAME", help="Time zone, such as Asia/Seoul. Default: UTC."
        ),
        click.option(
            "--valid-from",
            metavar="TIME",
            help="No start before this time, such as 2026-12-01T00:00Z.",
        ),
        click.option("--valid-until", metavar="TIME", help="No start at or after this time."),
        click.option(
            "--catch-up",
            "catch_up_minutes",
            type=click.IntRange(0, MAX_CATCH_UP_MINUTES),
            metavar="MINUTES",
            help="Maximum delay of a missed start. Default: 30.",
        ),
        click.option(
            "--overlap",
            type=Choice([each.value for each in Overlap]),
            help="If the last session is still live: skip the start (the default), or restart: "
            "stop the session first.",
        ),
        click.option(
            "--template",
            metavar="NAME",
            help="Template of the session; the other options override its fields.",
        ),
    )
    return with_options(command, *options)


@schedule.command(
    epilog=example(
        "bai schedule create work --start 'mon-fri 08:00' --stop 'mon-fri 19:00' "
        "--time-zone Asia/Seoul -r cpu=2 -r mem=4g",
        "bai schedule create nightly --start '0 2 * * *' --template train",
    )
)
@click.argument("name")
@click.option("--start", metavar="RULE", required=True, help="When to start a session.")
@_time_options
@spec_options
@json_option
@connected
async def create(
    connection: Connection, name: str, *, start: str, as_json: bool, **options: Any
) -> None:
    """Create a schedule. Its sessions have the name of the schedule.

    The session options are the same as for `bai session create`.
    """
    spec = {option: value for option, value in options.items() if option not in _FIELDS}
    body = {"name": name, "start": start, "request": request_fields(spec), **_given(options)}
    made = await connection.client.post("/schedules", body)
    first = next(iter(_local_starts(made)), "never")
    output.print_done(f"schedule {name} created; next start: {first}", made, as_json=as_json)


@schedule.command("ls", epilog=example("bai schedule ls"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List your schedules with their next start and their last run."""
    page = await connection.client.get("/schedules", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["next_start"] = next(iter(_local_starts(item)), None)
    output.print_page(
        page,
        COLUMNS,
        as_json=as_json,
        empty="no schedules yet; create one: bai schedule create NAME --start 'mon-fri 08:00'",
    )


@schedule.command(epilog=example("bai schedule info work"))
@click.argument("name")
@json_option
@connected
async def info(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show a schedule with its next starts."""
    found = await connection.client.get(f"/schedules/{segment(name)}")
    if not as_json:
        found["next_starts"] = _local_starts(found)
        found["request"] = request_text(found["request"])
    output.print_fields(found, as_json=as_json)


def _local_starts(found: Mapping[str, Any]) -> list[str]:
    """Return the next starts in the time zone of a schedule, with the day, as in its rule."""
    zone = ZoneInfo(found["time_zone"])
    starts = [datetime.fromisoformat(text).astimezone(zone) for text in found["next_starts"]]
    return [f"{start:%a %Y-%m-%d %H:%M} {start:%z}" for start in starts]


@schedule.command(epilog=example("bai schedule runs work"))
@click.argument("name")
@page_options
@json_option
@connected
async def runs(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the last starts of a schedule, and why some were skipped."""
    path = f"/schedules/{segment(name)}/runs"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _RUN_COLUMNS, as_json=as_json, empty="no starts yet")


@schedule.command("set", epilog=example("bai schedule set work --stop 'mon-fri 20:00'"))
@click.argument("name")
@click.option("--start", metavar="RULE", help="When to start a session.")
@_time_options
@click.option("--rename", metavar="NAME", help="New name.")
@json_option
@connected
async def set_(
    connection: Connection, name: str, *, rename: str | None, as_json: bool, **options: Any
) -> None:
    """Change the times of a schedule; `none` clears a stop, a template or a validity limit.

    A new stop also applies to running sessions of the schedule.
    """
    body = _given(options) | ({} if options["start"] is None else {"start": options["start"]})
    if rename is not None:
        body["name"] = rename
    if not body:
        raise click.UsageError("no option is given, so there is nothing to change")
    made = await connection.client.patch(f"/schedules/{segment(name)}", body)
    output.print_done(f"schedule {made['name']} changed", made, as_json=as_json)


@schedule.command(epilog=example("bai schedule pause work"))
@click.argument("name")
@json_option
@connected
async def pause(connection: Connection, name: str, *, as_json: bool) -> None:
    """Pause a schedule, which then only stops its running sessions."""
    made = await connection.client.patch(f"/schedules/{segment(name)}", {"is_paused": True})
    output.print_done(f"schedule {name} paused", made, as_json=as_json)


@schedule.command(epilog=example("bai schedule resume work"))
@click.argument("name")
@json_option
@connected
async def resume(connection: Connection, name: str, *, as_json: bool) -> None:
    """Resume a paused schedule."""
    made = await connection.client.patch(f"/schedules/{segment(name)}", {"is_paused": False})
    first = next(iter(_local_starts(made)), "never")
    output.print_done(f"schedule {name} resumed; next start: {first}", made, as_json=as_json)


@schedule.command(epilog=example("bai schedule rm work"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Delete a schedule; its sessions continue without a stop time."""
    await connection.client.delete(f"/schedules/{segment(name)}")
    output.print_done(f"schedule {name} deleted", {"name": name}, as_json=as_json)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the schedule among the options; ``none`` clears a field."""
    given = {name: options[name] for name in _FIELDS if options.get(name) is not None}
    return {
        name: None if name in _NULLABLE and value == _NONE else value
        for name, value in given.items()
    }
