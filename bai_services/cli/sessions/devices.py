"""`bai session devices`: the accelerators or shares allocated to a session, and their usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from .. import output
from ..cluster.agents import UNKNOWN, format_memory
from ..command import Connection, connected, example, json_option, segment

COLUMNS = (
    "kernel", "id", "model", "share", "enforcement", "memory", "busy", "processes", "active_at",
)  # fmt: skip


@click.command(epilog=example("bai session devices my-lab"))
@click.argument("name")
@json_option
@connected
async def devices(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show the accelerators of a session: allocated share, enforcement level and usage."""
    session = await connection.client.get(f"/sessions/{segment(name)}")
    if as_json:
        output.print_json(session["devices"])
        return
    if not session["devices"]:
        output.note(f"session {session['name']} has no accelerators")
        return
    output.print_table(map(_table_row, session["devices"]), COLUMNS)
    if notice := session["usage"].get("device_notice"):
        output.note(notice)


def _table_row(device: Mapping[str, Any]) -> dict[str, Any]:
    used, allocated = (format_memory(device[key]) for key in ("used_memory_bytes", "memory_bytes"))
    busy = device["utilization_percent"]
    model = f"{device['model']} (simulated)" if device["is_simulated"] else device["model"]
    return {
        **device,
        "model": model,
        "memory": f"{used} of {allocated}",
        "busy": UNKNOWN if busy is None else f"{busy}%",
        "processes": UNKNOWN if device["processes"] is None else device["processes"],
    }
