"""`bai session`: many at once, waiting for ends, priorities, graphs of dependencies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click
import yaml

from bai_services.core.errors import BaiError, Conflict, InvalidRequest
from bai_services.core.sessions.lifecycle import ENDED, Result, SessionType, Status

from .. import output
from ..admin.bounded_yaml import load_yaml
from ..command import Connection, connected, did_you_mean, example, json_option, segment
from .waiting import print_result, wait_for_status

COLUMNS = ("name", "status", "result", "depends_on")
FILED_COLUMNS = ("name", "status", "type", "priority", "id")


def failed(session: Mapping[str, Any]) -> BaiError | None:
    """Return the error of a session that ended other than as a batch session's success does."""
    if session["status"] not in ENDED:
        return None
    is_success = session["status"] == Status.TERMINATED and session["result"] == Result.SUCCESS
    if session["type"] == SessionType.BATCH and is_success:
        return None
    why = session["status_info"] or "no reason given"
    return Conflict(f"session {session['name']} is {session['status']}: {why}", session=session)


def goal_of(session: Mapping[str, Any]) -> Status:
    """Return what waiting for a session means: its end for a batch session, else that it runs."""
    return Status.TERMINATED if session["type"] == SessionType.BATCH else Status.RUNNING


@click.command(
    epilog=example(
        "bai session wait train --timeout 3600", "bai session wait my-lab --until RUNNING"
    )
)
@click.argument("name")
@click.option(
    "--until", metavar="STATUS",
    help="Default: TERMINATED for a batch session, RUNNING for others.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_seconds", type=click.FloatRange(min=0), metavar="SECONDS",
    help="At most so long; the session goes on.",
)  # fmt: skip
@json_option
@connected
async def wait(
    connection: Connection,
    name: str,
    *,
    until: str | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    """Wait until a batch session has ended, or another one runs.

    The exit code is 1 when a batch session ends without success, or another
    one ends before it has run.
    """
    session = await connection.client.get(f"/sessions/{segment(name)}")
    goal = read_status(until, "--until") if until else goal_of(session)
    begin = time.monotonic()
    session = await wait_for_status(
        connection.client, session, goal, timeout_seconds, is_reported=not as_json
    )
    if (error := failed(session)) is not None and not (until and session["status"] == goal):
        raise error
    print_result(connection, session, time.monotonic() - begin, as_json=as_json)


@click.command(epilog=example("bai session bulk jobs.yaml"))
@click.argument("file", type=click.File(encoding="utf-8"))
@json_option
@connected
async def bulk(connection: Connection, file: Any, *, as_json: bool) -> None:
    """File all sessions of a YAML or JSON file together, or none of them.

    FILE (- is standard input) holds a list; each entry has the fields of a session in the REST
    API. They may depend on each other by name.
    """
    answer = await connection.client.post("/bulk-sessions", {"sessions": _entries(file)})
    if as_json:
        output.print_json(answer)
    else:
        output.print_table(answer["items"], FILED_COLUMNS)


@click.command("set-priority", epilog=example("bai session set-priority train 50"))
@click.argument("name")
@click.argument("priority", type=int)
@json_option
@connected
async def set_priority(connection: Connection, name: str, priority: int, *, as_json: bool) -> None:
    """Give a waiting session another priority, 0 to 100, as far as the policy allows."""
    path = f"/sessions/{segment(name)}"
    changed = await connection.client.patch(path, {"priority": priority})
    where = f", number {changed['queue_position']} in the queue"
    text = f"{changed['name']} has priority {changed['priority']}"
    text += where if changed["queue_position"] else ""
    output.print_done(text, changed, as_json=as_json)


@click.command("keep-alive", epilog=example("bai session keep-alive my-lab"))
@click.argument("name")
@json_option
@connected
async def keep_alive(connection: Connection, name: str, *, as_json: bool) -> None:
    """Let the time begin again after which an unused session is stopped."""
    found = await connection.client.post(f"/sessions/{segment(name)}/activity", {})
    ends_at = found["idle_ends_at"]
    end = f"stopped at {ends_at} unless it is used" if ends_at else "not stopped for being unused"
    output.print_done(f"{name} is {end}", found, as_json=as_json)


@click.command("callback-secret", epilog=example("bai session callback-secret"))
@click.option(
    "--access-key", metavar="KEY", help="Of this keypair of yours; default: the main one."
)
@json_option
@connected
async def callback_secret(connection: Connection, *, access_key: str | None, as_json: bool) -> None:
    """Print what callbacks of your sessions are signed with, for who receives them."""
    if access_key is None:
        me = await connection.client.get("/me")
        mine = (await connection.client.get("/keypairs", user_id=me["id"], limit=500))["items"]
        access_key = next((pair["access_key"] for pair in mine if pair["is_main"]), None)
        if access_key is None:
            raise InvalidRequest("you have no keypair; an administrator can create one")
    found = await connection.client.get(f"/keypairs/{segment(access_key)}/callback-secret")
    output.print_done(found["callback_secret"], found, as_json=as_json)


@click.command(epilog=example("bai session graph train"))
@click.argument("name")
@json_option
@connected
async def graph(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show what a session depends on and what depends on it, over any steps."""
    found = await connection.client.get(f"/sessions/{segment(name)}/dependency-graph")
    if as_json:
        output.print_json(found)
        return
    names = {item["id"]: item["name"] for item in found["items"]}
    rows = [
        {**item, "depends_on": [names.get(key, key) for key in item["depends_on"]]}
        for item in found["items"]
    ]
    output.print_table(rows, COLUMNS)


def read_status(text: str, option: str) -> Status:
    """Return the status that an option names.

    Raises
    ------
    click.BadParameter
        If there is no such status.
    """
    try:
        return Status(text.strip().upper())
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a status; use {', '.join(Status)}.{did_you_mean(text, Status)}",
            param_hint=option,
        ) from None


def _entries(file: Any) -> list[Any]:
    try:
        # JSON is YAML as well.
        entries = load_yaml(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file.name} cannot be read: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidRequest(
            f"{file.name} must hold a list of sessions, each a map with at least a name"
        )
    return entries
