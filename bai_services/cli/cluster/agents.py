"""`bai agent`: what machines have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from bai_services.core.resources import MEM, ResourceSlots, format_amount

from .. import output
from ..command import Connection, connected, example, json_option, segment

COLUMNS = (
    "agent", "id", "model", "memory", "numa", "state",
    "used", "busy", "memory_used", "temperature", "power", "held_by", "shares",
)  # fmt: skip
LOOKS = ("agent", "family", "title", "tried", "found", "reason")
UNKNOWN = "unknown"
MIB = 2**20


@click.group()
def agent() -> None:
    """Look into the machines that run sessions."""


@agent.command(
    "devices", epilog=example("bai agent devices", "bai agent devices gpu-node-1 --json")
)
@click.argument("name", metavar="[AGENT]", required=False)
@json_option
@connected
async def devices(connection: Connection, name: str | None, *, as_json: bool) -> None:
    """Show the accelerators that were found, what they bear, and why others were not found."""
    client = connection.client
    if name is None:
        found = [one async for one in client.items("/agents")]
    else:
        found = [await client.get(f"/agents/{segment(name)}")]
    seen = [
        {**device, "agent": one["id"], "notes": notes_of(device)}
        for one in found
        for device in one["devices"]
    ]
    looks = [
        {"agent": one["id"], **look} for one in found for look in one["facts"].get("discovery", ())
    ]
    if as_json:
        output.print_json({"devices": seen, "discovery": looks})
        return
    if seen:
        output.print_table(map(_shown, seen), COLUMNS)
        for device in seen:
            for note in device["notes"]:
                click.echo(f"{device['id']}: {note}")
        click.echo()
    output.print_table(looks, LOOKS)


def with_free(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent with what it has, what is used and what is free, for people."""
    has, used = (ResourceSlots.parse(agent[name]) for name in ("slots", "used"))
    # An agent may have come to offer less than its sessions hold.
    free = {slot: max(0, amount - used.get(slot, 0)) for slot, amount in has.items()}
    return {
        **agent,
        "slots": _amounts(has, has),
        "used": _amounts(has, used),
        "free": _amounts(has, free),
    }


def _amounts(slots: Iterable[str], amounts: Mapping[str, int]) -> str:
    texts = []
    for slot in slots:
        amount = amounts.get(slot, 0)
        if slot == MEM:
            texts.append(f"{slot}={amount / 2**30:.1f} GiB".replace(".0 GiB", " GiB"))
        else:
            texts.append(f"{slot}={format_amount(slot, amount)}")
    return ", ".join(texts) or "nothing"


def notes_of(device: Mapping[str, Any]) -> list[str]:
    """Return why a device gives less than it could, in sentences."""
    facts = device["facts"]
    notes = []
    if facts.get("masked"):
        notes.append("it is masked by the administrator: nothing new is placed there")
    elif not device["is_healthy"]:
        notes.append("its driver has lost it, or does not answer: nothing new is placed there")
    if share := device.get("share_in_force"):
        notes.append(f"this device serves shares of {share} until it is empty")
    if withheld := facts.get("shares_withheld"):
        notes.append(f"no shares: {withheld}")
    notes += [f"not {level}: {why}" for level, why in (facts.get("not_firmer") or {}).items()]
    return notes


def _shown(device: Mapping[str, Any]) -> dict[str, Any]:
    facts = device["facts"]
    usage = facts.get("usage") or {}
    state = "healthy" if device["is_healthy"] else "not usable"
    return {
        **device,
        "model": f"{device['model']} (simulated)" if device["is_simulated"] else device["model"],
        "memory": _memory(device["memory_bytes"]),
        "numa": UNKNOWN if device["numa_node"] is None else device["numa_node"],
        "state": state,
        "used": f"{device['used']} of {device['capacity']}",
        "busy": _measured(usage.get("utilization_percent"), "%"),
        "memory_used": _memory(usage.get("memory_used_bytes")),
        "temperature": _measured(usage.get("temperature_celsius"), "°C"),
        "power": _measured(usage.get("power_watts"), "W"),
        "held_by": facts.get("enforcement") or UNKNOWN,
        "shares": facts.get("slot") or _shares(facts.get("shares")),
    }


def _shares(shares: Mapping[str, Any] | None) -> str:
    """Return which shares can be had, as in ``0.05 to 1, at most 20 sessions``."""
    if not shares:
        return "whole only"
    least, most = shares["least"], shares["most"]
    amounts = least if least == most else f"{least} to {most}"
    alike = ", all alike" if shares.get("is_uniform") else ""
    return f"{amounts}{alike}, at most {shares['clients']} sessions"


def _measured(number: float | None, unit: str) -> str:
    return UNKNOWN if number is None else f"{number:g}{unit}"


def _memory(amount: int | None) -> str:
    return UNKNOWN if amount is None else format_amount(MEM, amount // MIB * MIB)
