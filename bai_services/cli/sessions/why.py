"""`bai session why`: why a session is pending, its estimated start, and how to start it sooner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bai_services.core.sessions.lifecycle import Status

from .. import output
from ..command import Connection, connected, example, json_option, segment

_CERTAINTIES = {
    "known": "exact if sessions run until their limits and no session with a higher priority "
    "(with lifo: no session at all) arrives",
    "estimated": "assumes that predicted run times are right, that dependencies "
    "succeed and that no later session overtakes this one",
    "rough": "extrapolated from the estimated starts of sessions further ahead in the queue",
}


@click.command(epilog=example("bai session why my-lab"))
@click.argument("name")
@json_option
@connected
async def why(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show why a session is pending: queue position, every check, estimated start, suggestions."""
    response = await connection.client.get(f"/sessions/{segment(name)}/why")
    if as_json:
        output.print_json(response)
        return
    for line in format_lines(response):
        click.echo(line)


def format_lines(response: Mapping[str, Any]) -> list[str]:
    """Return a response of the route ``/sessions/{key}/why`` as text lines."""
    if response["status"] != Status.PENDING:
        return [f"session {response['name']} is not pending: it is {response['status']}"]
    position = f"position {response['position']}" if response["position"] else "pending"
    group, priority = response["resource_group"], response["priority"]
    title = f"{response['name']}: {position} in resource group {group}, priority {priority}"
    return [title, *explanation_lines(response)]


def explanation_lines(response: Mapping[str, Any]) -> list[str]:
    """Return text lines with the checks, the estimated start and the suggestions of a response."""
    lines = [_check(check) for check in response["checks"]]
    estimate = response["estimate"]
    if estimate["starts_at"]:
        certainty = _certainty(estimate["certainty"])
        lines.append(f"estimated start: {estimate['starts_at']} ({certainty})")
    else:
        lines.append("start time not yet known")
    return lines + _suggestions(response["sooner"])


def _certainty(label: str) -> str:
    meaning = _CERTAINTIES.get(label)
    return label if meaning is None else f"{label}: {meaning}"


def _check(check: Mapping[str, Any]) -> str:
    return f"  {'ok  ' if check['passed'] else 'FAIL'}  {check['check']}: {check['message']}"


def _suggestions(remedies: Sequence[Mapping[str, Any]]) -> list[str]:
    if not remedies:
        return []
    return ["to start it sooner:", *(f"  - {remedy['message']}" for remedy in remedies)]
