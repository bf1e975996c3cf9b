"""`bai session devices`: what of an accelerator is mine, and how much of it I use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from bai_services.core.resources import MEM, format_amount

from .. import output
from ..command import Connection, connected, example, json_option, segment

COLUMNS = ("kernel", "id", "model", "share", "held_by", "memory", "busy", "processes", "active_at")
UNKNOWN = "unknown"
MIB = 2**20


@click.command(epilog=example("bai session devices my-lab"))
@click.argument("name")
@json_option
@connected
async def devices(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show the accelerators of a session: the part that is given, how firmly, and its use."""
    found = await connection.client.get(f"/sessions/{segment(name)}")
    if as_json:
        output.print_json(found["devices"])
        return
    if not found["devices"]:
        click.echo(f"session {found['name']} has no device")
        return
    output.print_table(map(_shown, found["devices"]), COLUMNS)
    if notice := found["usage"].get("device_notice"):
        click.echo(notice, err=True)


def _shown(device: Mapping[str, Any]) -> dict[str, Any]:
    used, given = (_memory(device[key]) for key in ("used_memory_bytes", "memory_bytes"))
    busy = device["utilization_percent"]
    model = f"{device['model']} (simulated)" if device["is_simulated"] else device["model"]
    return {
        **device,
        "model": model,
        "held_by": device["enforcement"],
        "memory": f"{used} of {given}",
        "busy": UNKNOWN if busy is None else f"{busy}%",
        "processes": UNKNOWN if device["processes"] is None else device["processes"],
    }


def _memory(amount: int | None) -> str:
    return UNKNOWN if amount is None else format_amount(MEM, amount // MIB * MIB)
