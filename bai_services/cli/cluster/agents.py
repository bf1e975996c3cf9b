"""`bai agent`: agents and their accelerators; formatted capacity for `bai admin agent list`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from bai_services.core.counts import counted
from bai_services.core.resources import ResourceSlots

from .. import output, units
from ..command import Connection, command_group, connected, example, json_option, segment

COLUMNS = (
    "agent", "id", "model", "memory", "numa", "state",
    "used", "busy", "memory_used", "temperature", "power", "enforcement", "shares",
)  # fmt: skip
DISCOVERY_COLUMNS = ("agent", "family", "title", "tried", "found", "reason")
SUMMARY_COLUMNS = (
    "id", "status", "architecture", "resource_group", "schedulable", "slots", "used", "free",
)  # fmt: skip
UNKNOWN = "unknown"


@command_group()
def agent() -> None:
    """Show agents (the machines that run sessions) and their accelerators."""


@agent.command("list", epilog=example("bai agent list", "bai agent list --json"))
@json_option
@connected
async def list_agents(connection: Connection, *, as_json: bool) -> None:
    """List the agents of your resource groups, if the installation shows them to users."""
    summaries = [one async for one in connection.client.items("/agent-summaries", sort="id")]
    if as_json:
        output.print_json({"items": summaries})
        return
    rows = map(with_formatted_capacity, summaries)
    output.print_table(rows, SUMMARY_COLUMNS, empty="no agents in your resource groups")


@agent.command(
    "devices", epilog=example("bai agent devices", "bai agent devices gpu-node-1 --json")
)
@click.argument("name", metavar="[AGENT]", required=False)
@json_option
@connected
async def devices(connection: Connection, name: str | None, *, as_json: bool) -> None:
    """List the detected accelerators and their shares, and the reasons why others are missing."""
    client = connection.client
    if name is None:
        agents = [one async for one in client.items("/agents")]
    else:
        agents = [await client.get(f"/agents/{segment(name)}")]
    devices = [
        {**device, "agent": agent["id"], "notes": notes_of(device)}
        for agent in agents
        for device in agent["devices"]
    ]
    discovery = [
        {"agent": agent["id"], **result}
        for agent in agents
        for result in agent["facts"].get("discovery", ())
    ]
    if as_json:
        output.print_json({"devices": devices, "discovery": discovery})
        return
    empty = "no accelerators detected" if agents else "no agents are connected"
    output.print_table(map(_table_row, devices), COLUMNS, empty=empty)
    for device in devices:
        for note in device["notes"]:
            click.echo(output.cell(f"{device['id']}: {note}"))
    if discovery:
        click.echo()
        output.print_table(discovery, DISCOVERY_COLUMNS)


def with_formatted_capacity(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent with human-readable total, used and free resources."""
    total, used = (ResourceSlots.parse(agent[name]) for name in ("slots", "used"))
    # At least 0, because the capacity of an agent can become smaller than the amounts that its
    # sessions have allocated.
    free = {slot: max(0, amount - used.get(slot, 0)) for slot, amount in total.items()}
    return {
        **agent,
        "slots": _format_slots(total, total),
        "used": _format_slots(total, used),
        "free": _format_slots(total, free),
    }


def _format_slots(slots: Iterable[str], amounts: Mapping[str, int]) -> str:
    texts = [f"{slot}={units.amount(slot, amounts.get(slot, 0))}" for slot in slots]
    # One slot per line on a terminal, so that three columns of resources fit into 80 characters.
    separator = "\n" if output.console().is_terminal else ", "
    return separator.join(texts) or "nothing"


def notes_of(device: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a device has less than its full capacity or isolation."""
    facts = device["facts"]
    notes = []
    if facts.get("masked"):
        notes.append("masked by the administrator; no new sessions are placed on it")
    elif not device["is_healthy"]:
        notes.append("lost by its driver or not responding; no new sessions are placed on it")
    if share := device.get("share_in_force"):
        notes.append(f"while a session uses the device, it offers only shares of {share}")
    if withheld := facts.get("shares_withheld"):
        notes.append(f"no shares: {withheld}")
    for level, reason in (facts.get("unavailable_levels") or {}).items():
        notes.append(f"enforcement level {level} is not available: {reason}")
    return notes


def _table_row(device: Mapping[str, Any]) -> dict[str, Any]:
    facts = device["facts"]
    usage = facts.get("usage") or {}
    state = "healthy" if device["is_healthy"] else "not usable"
    return {
        **device,
        "model": f"{device['model']} (simulated)" if device["is_simulated"] else device["model"],
        "memory": format_memory(device["memory_bytes"]),
        "numa": UNKNOWN if device["numa_node"] is None else device["numa_node"],
        "state": state,
        "used": f"{device['used']} of {device['capacity']}",
        "busy": _measured(usage.get("utilization_percent"), "%"),
        "memory_used": format_memory(usage.get("memory_used_bytes")),
        "temperature": _measured(usage.get("temperature_celsius"), "°C"),
        "power": _measured(usage.get("power_watts"), "W"),
        "enforcement": facts.get("enforcement") or UNKNOWN,
        "shares": facts.get("slot") or _shares(facts.get("shares")),
    }


def _shares(shares: Mapping[str, Any] | None) -> str:
    """Format the supported shares: ``0.05 to 1, at most 20 sessions``."""
    if not shares:
        return "whole only"
    smallest, largest = shares["least"], shares["most"]
    sizes = smallest if smallest == largest else f"{smallest} to {largest}"
    uniform = ", same for all sessions" if shares.get("is_uniform") else ""
    return f"{sizes}{uniform}, at most {counted(shares['clients'], 'sessions')}"


def _measured(number: float | None, unit: str) -> str:
    return UNKNOWN if number is None else f"{number:g}{unit}"


def format_memory(amount: int | None) -> str:
    """Format a number of bytes; ``unknown`` for None."""
    return UNKNOWN if amount is None else units.size(amount)
