"""`bai session why`: why a session is pending, its estimated start, and how to start it sooner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bai_services.core.sessions.lifecycle import Status

from .. import output, units
from ..command import Connection, connected, example, json_option, segment
from ..screen import WIDTH, wrapped
from ..text import printable
from .wait_reasons import position_text

_CERTAINTIES = {
    "known": "exact if sessions run until their limits and no new session is placed ahead of this "
    "one in the queue",
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
    position = position_text(response["position"], response["resource_group"])
    title = f"{response['name']}: {position}, priority {response['priority']}"
    return [*_wrapped(title), *explanation_lines(response)]


def explanation_lines(response: Mapping[str, Any]) -> list[str]:
    """Return text lines with the checks, the estimated start and the suggestions of a response."""
    lines = [line for check in response["checks"] for line in check_lines(check)]
    estimate = response["estimate"]
    when = units.parse_time(estimate["starts_at"])
    if when is None:
        lines.append("start time not yet known")
    else:
        certainty = _certainty(estimate["certainty"])
        text = f"estimated start: {units.relative(when)}, {units.local(when)} ({certainty})"
        lines += _wrapped(text)
    return lines + _suggestions(response["sooner"]) + _overflow(response["overflow"])


def _certainty(label: str) -> str:
    meaning = _CERTAINTIES.get(label)
    return label if meaning is None else f"{label}: {meaning}"


def check_lines(check: Mapping[str, Any]) -> list[str]:
    """Return the text lines of one check: its result, its name and its message."""
    result = "ok  " if check["passed"] else "FAIL"
    return _wrapped(f"{check['check']}: {check['message']}", prefix=f"  {result}  ")


def _suggestions(remedies: Sequence[Mapping[str, Any]]) -> list[str]:
    if not remedies:
        return []
    lines = [_wrapped(remedy["message"], prefix="  - ") for remedy in remedies]
    return ["to start it sooner:", *(line for remedy in lines for line in remedy)]


def _overflow(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines with the resource groups to which the session may move."""
    if not targets:
        return []
    lines = ["moves to one of these resource groups as soon as it can start there:"]
    for target in targets:
        at = units.parse_time(target["moves_at"])
        when = (
            f"after a wait of {units.duration(target['after_seconds'])}"
            if at is None
            else f"from {units.local(at)}"
        )
        lines += _wrapped(f"{target['resource_group']}: {when}", prefix="  - ")
    return lines


def _wrapped(text: str, *, prefix: str = "") -> list[str]:
    """Return the lines of a text, wrapped at 80 columns, the first with ``prefix``."""
    lines = wrapped(printable(units.with_local_times(text)), WIDTH - len(prefix))
    return [(" " * len(prefix) if number else prefix) + line for number, line in enumerate(lines)]
