"""`bai session why`: why a session is pending, its estimated start, and how to start it sooner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bai_services.core.sessions.lifecycle import Status

from .. import output
from ..command import Connection, connected, example, json_option, segment

_CERTAINTIES = {
    "known": "exact unless a session arrives that is ordered before it: "
    "one of higher priority or, with lifo, any newer one",
    "estimated": "assumes predicted run times, or that no later session overtakes it",
    "rough": "extrapolated from how fast the sessions ahead of it started",
}


@click.command(epilog=example("bai session why my-lab"))
@click.argument("name")
@json_option
@connected
async def why(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show why a session is pending: queue position, every check, estimated start, suggestions."""
    found = await connection.client.get(f"/sessions/{segment(name)}/why")
    if as_json:
        output.print_json(found)
        return
    for line in format_lines(found):
        click.echo(line)


def format_lines(found: Mapping[str, Any]) -> list[str]:
    """Format the response as text lines."""
    if found["status"] != Status.PENDING:
        return [f"session {found['name']} is not pending: it is {found['status']}"]
    position = f"position {found['position']}" if found["position"] else "pending"
    group, priority = found["resource_group"], found["priority"]
    title = f"{found['name']}: {position} in resource group {group}, priority {priority}"
    return [title, *explanation_lines(found)]


def explanation_lines(found: Mapping[str, Any]) -> list[str]:
    """Format the checks, the estimated start and the suggestions of a response."""
    lines = [_check(check) for check in found["checks"]]
    estimate = found["estimate"]
    if estimate["starts_at"]:
        certainty = _certainty(estimate["certainty"])
        lines.append(f"estimated start: {estimate['starts_at']} ({certainty})")
    else:
        lines.append("start time not yet known")
    return lines + _suggestions(found["sooner"])


def _certainty(label: str) -> str:
    meaning = _CERTAINTIES.get(label)
    return label if meaning is None else f"{label}: {meaning}"


def _check(check: Mapping[str, Any]) -> str:
    return f"  {'ok  ' if check['passed'] else 'FAIL'}  {check['check']}: {check['message']}"


def _suggestions(remedies: Sequence[Mapping[str, Any]]) -> list[str]:
    if not remedies:
        return []
    return ["to start it sooner:", *(f"  - {remedy['message']}" for remedy in remedies)]
