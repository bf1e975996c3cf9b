"""`bai admin idle-checker`: bindings, decisions and replays of idle checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from bai_services.core.counts import counted
from bai_services.core.durations import parse_duration

from .. import output
from ..command import (
    Choice,
    Connection,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)

SCOPES = ("domain", "project", "resource-group", "user", "keypair-policy")
_BINDING_COLUMNS = ("checker", "scope", "scope_name", "is_enabled", "is_dry_run", "id")
_DECISION_COLUMNS = ("at", "checker", "session", "owner", "is_dry_run", "reason")
_STOP_COLUMNS = ("session", "owner", "stopped_at", "ended_at")

_dry_run_option = click.option(
    "--dry-run/--no-dry-run", "is_dry_run", default=None, help="Record decisions, but stop nothing."
)


@click.command("bind", epilog=example("bai admin idle-checker bind idle-gpu domain research"))
@click.argument("checker")
@click.argument("scope", type=Choice(SCOPES))
@click.argument("target")
@_dry_run_option
@json_option
@connected
async def bind(
    connection: Connection,
    checker: str,
    scope: str,
    target: str,
    *,
    is_dry_run: bool | None,
    as_json: bool,
) -> None:
    """Apply a checker to a domain, project, resource group, user or keypair policy."""
    body = {"checker": checker, "scope": scope, "scope_key": target, "is_dry_run": bool(is_dry_run)}
    created = await connection.client.post("/idle-checker-bindings", body)
    mode = " as a dry run" if created["is_dry_run"] else ""
    output.print_done(
        f"{checker} applies to the sessions of {scope} {created['scope_name']}{mode}",
        created,
        as_json=as_json,
    )


@click.command("bindings", epilog=example("bai admin idle-checker bindings idle-gpu"))
@click.argument("checker", required=False)
@page_options
@json_option
@connected
async def bindings(
    connection: Connection,
    checker: str | None,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the bindings of all idle checkers, or of one."""
    query = page_query(sort, limit, offset) | ({"checker": checker} if checker else {})
    page = await connection.client.get("/idle-checker-bindings", **query)
    empty = "no bindings; add one: bai admin idle-checker bind CHECKER SCOPE TARGET"
    output.print_page(page, _BINDING_COLUMNS, as_json=as_json, empty=empty)


@click.command("set-binding", epilog=example("bai admin idle-checker set-binding ID --no-dry-run"))
@click.argument("binding", metavar="ID")
@click.option("--enabled/--no-enabled", "is_enabled", default=None, help="Enable the binding.")
@_dry_run_option
@json_option
@connected
async def set_binding(
    connection: Connection,
    binding: str,
    *,
    is_enabled: bool | None,
    is_dry_run: bool | None,
    as_json: bool,
) -> None:
    """Enable or disable a binding, or make it a dry run."""
    given = {"is_enabled": is_enabled, "is_dry_run": is_dry_run}
    body = {name: value for name, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("no field to change; --help lists the options")
    path = f"/idle-checker-bindings/{segment(binding)}"
    output.print_fields(await connection.client.patch(path, body), as_json=as_json)


@click.command("unbind", epilog=example("bai admin idle-checker unbind ID"))
@click.argument("binding", metavar="ID")
@json_option
@connected
async def unbind(connection: Connection, binding: str, *, as_json: bool) -> None:
    """Delete a binding."""
    await connection.client.delete(f"/idle-checker-bindings/{segment(binding)}")
    output.print_done(f"binding {binding} deleted", {"deleted": binding}, as_json=as_json)


@click.command("decisions", epilog=example("bai admin idle-checker decisions idle-gpu"))
@click.argument("checker", required=False)
@page_options
@json_option
@connected
async def decisions(
    connection: Connection,
    checker: str | None,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the sessions that idle checkers stopped, or would have stopped in a dry run."""
    query = page_query(sort, limit, offset) | ({"checker": checker} if checker else {})
    page = await connection.client.get("/idle-decisions", **query)
    subject = f"{checker} has stopped no" if checker else "no idle checker has stopped a"
    empty = f"{subject} session in the last 30 days, not even in a dry run"
    output.print_page(page, _DECISION_COLUMNS, as_json=as_json, empty=empty)


@click.command(
    "replay",
    epilog=example(
        "bai admin idle-checker replay idle-gpu --period 7d",
        "bai admin idle-checker replay idle-gpu --window 30min --threshold cuda_util=10",
    ),
)
@click.argument("checker", required=False)
@click.option("--period", default="1d", metavar="DURATION", help="Recorded period. Default: 1d.")
@click.option("--window", metavar="DURATION", help="Another length of the window.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="METRIC=NUMBER",
    help="Other thresholds, in percent or bytes per second. May be repeated.",
)
@click.option(
    "--reuse",
    default="1h",
    metavar="DURATION",
    help="A stop is wrong if the session was used again within this time. Default: 1h.",
)
@json_option
@connected
async def replay(
    connection: Connection,
    checker: str | None,
    *,
    period: str,
    window: str | None,
    thresholds: tuple[str, ...],
    reuse: str,
    as_json: bool,
) -> None:
    """Show what a utilization checker would have stopped in a recorded period.

    Without CHECKER, --window and --threshold are the rule. The replay ignores waiting sessions,
    keep-alives and exclusions.
    """
    body: dict[str, Any] = {
        "period_seconds": parse_duration(period, "--period"),
        "reuse_seconds": parse_duration(reuse, "--reuse"),
    }
    if checker is not None:
        body["checker"] = checker
    if window is not None:
        body["max_seconds"] = parse_duration(window, "--window")
    if thresholds:
        body["thresholds"] = dict(map(_threshold, thresholds))
    result = await connection.client.post("/idle-replays", body)
    if as_json:
        output.print_json(result)
        return
    hours = ("device_hours",) if result["judged_device_hours"] else ("core_hours",)
    output.print_table(result["stops"], (*_STOP_COLUMNS, *hours, "used_again_at"))
    print(summary_of(result))


def summary_of(result: Mapping[str, Any]) -> str:
    """Return the totals of a replay as text: device hours only if the sessions had devices."""
    kinds = ("device", "core") if result["judged_device_hours"] else ("core",)
    freed = " and ".join(
        f"{result[f'{kind}_hours_freed']} of {result[f'judged_{kind}_hours']} {kind} hours"
        for kind in kinds
    )
    text = (
        f"{result['stopped']} of {counted(result['judged'], 'sessions')} stopped, "
        f"{result['stopped_wrongly']} of them wrongly (used again soon after); {freed} freed"
    )
    return text if result["is_complete"] else f"{text}\nincomplete: too many sessions or samples"


def _threshold(text: str) -> tuple[str, int]:
    metric, equals, number = text.partition("=")
    if not (equals and number.isascii() and number.isdecimal() and len(number) <= 15):
        raise click.UsageError(f"{text!r} is not METRIC=NUMBER, such as cuda_util=5")
    return metric, int(number)


IDLE_CHECKER_COMMANDS = (bind, bindings, set_binding, unbind, decisions, replay)
