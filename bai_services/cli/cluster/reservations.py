"""`bai reservation`: reserve resources on machines, or whole machines, for a project."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from bai_services.client import Client
from bai_services.core.errors import Unavailable
from bai_services.core.scheduling.reservation_states import (
    ReservationPhase,
    ReservationState,
    phase_of,
)

from .. import output, units
from ..command import (
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)
from ..sessions.spec_options import parse_amounts

COLUMNS = (
    "name", "state", "project", "resource_group", "nodes", "resources", "whole_machines",
    "starts_at", "ends_at",
)  # fmt: skip


DELAY_COLUMNS = ("session", "owner", "starts_at", "delayed_until")
CONFLICT_COLUMNS = ("session", "owner", "agents", "ends_at")
PHASE_TEXTS = {
    ReservationPhase.UNUSED: "in progress, unused",
    ReservationPhase.USED: "in progress",
    ReservationPhase.ENDED: "ended",
}


@command_group(
    epilog=example(
        "bai reservation create course --project research --group gpu --nodes 2 "
        "-r cuda.device=4 --from 2026-12-01T08:00Z --until 2026-12-01T18:00Z",
        "bai session create my-lab --reservation course",
    )
)
def reservation() -> None:
    """Reserve machines for a project and a period."""


def _to_text(item: dict[str, Any]) -> None:
    """Replace the resources and the state of a reservation by texts for the terminal."""
    item["resources"] = units.slots(item["resources"])
    starts_at, ends_at, used_at = (
        at and datetime.fromisoformat(at)
        for at in (item["starts_at"], item["ends_at"], item["used_at"])
    )
    phase = phase_of(starts_at, ends_at, used_at, datetime.now(UTC))
    if item["state"] == ReservationState.APPROVED:
        item["state"] = PHASE_TEXTS.get(phase, item["state"])
    elif item["state"] == ReservationState.REQUESTED and phase is ReservationPhase.ENDED:
        item["state"] = "ended without a decision"


@reservation.command("list", epilog=example("bai reservation list"))
@page_options
@json_option
@connected
async def list_reservations(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the reservations of your projects, the latest first unless --sort is given."""
    query = page_query(sort or "-starts_at", limit, offset)
    page = await connection.client.get("/reservations", **query)
    if not as_json:
        for item in page["items"]:
            _to_text(item)
    empty = "no reservations; request one with: bai reservation create"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)


@reservation.command("show", epilog=example("bai reservation show course"))
@click.argument("name")
@json_option
@connected
async def show(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show a reservation, with its machines."""
    found = await connection.client.get(f"/reservations/{segment(name)}")
    if not as_json:
        _to_text(found)
    output.print_fields(found, as_json=as_json)
    if not as_json:
        await _note_conflicts(connection.client, found)


@reservation.command(
    epilog=example(
        "bai reservation create course --project research --group gpu -r cuda.device=4 "
        "--from 2026-12-01T08:00Z --until 2026-12-01T18:00Z"
    )
)
@click.argument("name")
@click.option("--project", required=True, metavar="NAME", help="Project that may use it.")
@click.option("--group", "resource_group", required=True, metavar="NAME", help="Resource group.")
@click.option(
    "--nodes", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Number of machines.",
)  # fmt: skip
@click.option(
    "-r", "--resource", "resources", multiple=True, required=True, metavar="SLOT=AMOUNT",
    callback=parse_amounts,
    help="Resources to reserve on each machine. Other sessions may use the rest of it.",
)  # fmt: skip
@click.option(
    "--whole-machines", is_flag=True,
    help="Reserve whole machines, with at least these resources.",
)  # fmt: skip
@click.option(
    "--from", "starts_at", required=True, metavar="TIME",
    help="Start, such as 2026-12-01T08:00Z.",
)  # fmt: skip
@click.option("--until", "ends_at", required=True, metavar="TIME", help="End.")
@click.option(
    "--user", "users", multiple=True, metavar="NAME",
    help="Member of the project who may use it. Default: all members.",
)  # fmt: skip
@click.option(
    "--grace", "grace_seconds", type=click.IntRange(min=60), metavar="SECONDS",
    help="Time after the start until an unused reservation expires. Default: 1800.",
)  # fmt: skip
@click.option("--note", default="", help="Note for the administrators.")
@json_option
@connected
async def create(
    connection: Connection,
    name: str,
    *,
    resources: Mapping[str, str],
    users: tuple[str, ...],
    grace_seconds: int | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Request a reservation of parts of machines, or of whole machines.

    An administrator of the domain approves it; a reservation that an administrator requests is
    approved at once.
    """
    body = {"name": name, "resources": dict(resources), "users": list(users), **fields}
    if grace_seconds is not None:
        body["grace_seconds"] = grace_seconds
    made = await connection.client.post("/reservations", body)
    machines = ", ".join(made["agents"])
    text = f"reservation {made['name']} is {made['state']}: {machines}"
    output.print_done(text, made, as_json=as_json)
    if not as_json:
        await _note_conflicts(connection.client, made)


@reservation.command(epilog=example("bai reservation delays course"))
@click.argument("name")
@json_option
@connected
async def delays(connection: Connection, name: str, *, as_json: bool) -> None:
    """List the pending sessions that start later if you approve a reservation.

    The times are estimates. Sessions that you may not see have no name.
    """
    found = await connection.client.get(f"/reservations/{segment(name)}/delays")
    if as_json:
        output.print_json(found)
        return
    if not found["is_complete"]:
        raise Unavailable("the manager cannot estimate starts now; try again later")
    rows = [
        {
            "session": (one["session"] or {}).get("name", "-"),
            "owner": (one["session"] or {}).get("owner", "-"),
            "starts_at": one["starts_at"],
            "delayed_until": one["delayed_until"] or "unknown",
        }
        for one in found["sessions"]
    ]
    output.print_table(rows, DELAY_COLUMNS, empty="the approval delays no pending session")
    if found["count"] > len(rows):
        output.note(f"{found['count']} sessions in total")


@reservation.command(epilog=example("bai reservation conflicts course"))
@click.argument("name")
@json_option
@connected
async def conflicts(connection: Connection, name: str, *, as_json: bool) -> None:
    """List the running sessions that can delay a reservation.

    These sessions are not certain to end before the start. The reservation does not stop them:
    their resources become free when they end. If you need the resources in time, ask an
    administrator to stop the sessions, or reserve other machines or a later start.
    """
    found = await connection.client.get(f"/reservations/{segment(name)}/conflicts")
    if as_json:
        output.print_json(found)
        return
    if not found["is_complete"]:
        raise Unavailable("the manager does not know the running sessions now; try again later")
    rows = [
        {
            "session": (one["session"] or {}).get("name", "-"),
            "owner": (one["session"] or {}).get("owner", "-"),
            "agents": one["agents"],
            "ends_at": one["ends_at"] or "no time limit",
        }
        for one in found["sessions"]
    ]
    output.print_table(rows, CONFLICT_COLUMNS, empty="no running session delays the reservation")
    if found["count"] > len(rows):
        output.note(f"{found['count']} sessions in total")


async def _note_conflicts(client: Client, reservation: Mapping[str, Any]) -> None:
    """Print a note if running sessions can delay an open reservation."""
    found = await client.get(f"/reservations/{reservation['id']}/conflicts")
    if count := found["count"]:
        sessions = "1 running session" if count == 1 else f"{count} running sessions"
        name = reservation["name"]
        output.note(f"{sessions} can delay the reservation: bai reservation conflicts {name}")


def _decision(verb: str, state: str, summary: str) -> None:
    @reservation.command(verb, help=summary, epilog=example(f"bai reservation {verb} course"))
    @click.argument("name")
    @json_option
    @connected
    async def decide(connection: Connection, name: str, *, as_json: bool) -> None:
        path = f"/reservations/{segment(name)}"
        found = await connection.client.patch(path, {"state": state})
        output.print_done(f"reservation {found['name']} is {state}", found, as_json=as_json)
        if state == ReservationState.APPROVED and not as_json:
            await _note_conflicts(connection.client, found)


_decision("approve", "approved", "Approve a requested reservation.")
_decision("reject", "rejected", "Reject a requested reservation.")
_decision("cancel", "cancelled", "Cancel a reservation; its machines become available.")
