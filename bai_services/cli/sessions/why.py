"""`bai session why`: what a waiting session waits for, until when, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bai_services.core.sessions.lifecycle import Status

from .. import output
from ..command import Connection, connected, example, json_option, segment

_MEANINGS = {
    "known": "later only if a session of higher priority arrives, or a later one in the order lifo",
    "estimated": "it rests on run times that are learned, or on no later session passing it",
    "rough": "at the pace of the sessions before it",
}


@click.command(epilog=example("bai session why my-lab"))
@click.argument("name")
@json_option
@connected
async def why(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show why a session waits: its position, every check, its start, what would help."""
    found = await connection.client.get(f"/sessions/{segment(name)}/why")
    if as_json:
        output.print_json(found)
        return
    for line in lines_of(found):
        click.echo(line)


def lines_of(found: Mapping[str, Any]) -> list[str]:
    """Return what people read."""
    if found["status"] != Status.PENDING:
        return [f"session {found['name']} does not wait: it is {found['status']}"]
    place = f"number {found['position']}" if found["position"] else "waiting"
    group, priority = found["resource_group"], found["priority"]
    lines = [f"{found['name']}: {place} in resource group {group}, priority {priority}"]
    lines += [_check(check) for check in found["checks"]]
    estimate = found["estimate"]
    if estimate["starts_at"]:
        lines.append(f"starts about {estimate['starts_at']} ({_certainty(estimate['certainty'])})")
    else:
        lines.append("nothing tells yet when it starts")
    return lines + _sooner(found["sooner"])


def _certainty(label: str) -> str:
    meaning = _MEANINGS.get(label)
    return label if meaning is None else f"{label}: {meaning}"


def _check(check: Mapping[str, Any]) -> str:
    return f"  {'ok  ' if check['passed'] else 'FAIL'}  {check['check']}: {check['message']}"


def _sooner(remedies: Sequence[Mapping[str, Any]]) -> list[str]:
    if not remedies:
        return []
    return ["sooner:", *(f"  - {remedy['message']}" for remedy in remedies)]
