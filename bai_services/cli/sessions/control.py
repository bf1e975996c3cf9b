"""`bai session`: wait, bulk, set-priority, suspend, keep-alive, extend, callback-secret, graph."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import click
import yaml

from bai_services.core.bounded_yaml import load_yaml
from bai_services.core.coded_text import TextTemplate
from bai_services.core.durations import parse_duration
from bai_services.core.errors import BaiError, Conflict, InvalidRequest
from bai_services.core.sessions.idle_checks.checkers import CheckerType
from bai_services.core.sessions.lifecycle import (
    ENDED,
    MAX_EXTENSION_SECONDS,
    Result,
    SessionType,
    Status,
)
from bai_services.core.sessions.suspensions import DEFAULT_SECONDS, MAX_SECONDS

from .. import output, units
from ..command import Connection, connected, did_you_mean, example, json_option, segment
from .wait_reasons import position_text
from .waiting import print_result, wait_for_status

GRAPH_COLUMNS = ("name", "status", "result", "depends_on")
# The same as a click on *Extend the lifetime* in the web UI.
_DEFAULT_EXTENSION_SECONDS = 3600
CREATED_COLUMNS = ("name", "status", "type", "priority", "id")


def failure_of(session: Mapping[str, Any]) -> BaiError | None:
    """Return an error if a session has ended, except for a batch session that succeeded."""
    if session["status"] not in ENDED:
        return None
    is_success = session["status"] == Status.TERMINATED and session["result"] == Result.SUCCESS
    if session["type"] == SessionType.BATCH and is_success:
        return None
    return _end_of(session)


def _end_of(session: Mapping[str, Any]) -> BaiError:
    why = session["status_info"] or "no reason given"
    return Conflict(f"session {session['name']} is {session['status']}: {why}", session=session)


def awaited_status(session: Mapping[str, Any]) -> Status:
    """Return the status to wait for by default: the end of a batch session, else ``RUNNING``."""
    return Status.TERMINATED if session["type"] == SessionType.BATCH else Status.RUNNING


@click.command(
    epilog=example(
        "bai session wait train --timeout 3600", "bai session wait my-lab --until RUNNING"
    )
)
@click.argument("name")
@click.option(
    "--until", metavar="STATUS",
    help="Status to wait for. Default: TERMINATED for a batch session, else RUNNING.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_seconds", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Maximum wait; the session itself is not affected. Default: no limit.",
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
    """Wait until a session is running, or a batch session has ended.

    The exit code is 1 if the timeout expires, if a batch session fails, or if a session of
    another type ends before it is running. With --until STATUS, the exit code is 0 if the
    session has reached or passed STATUS, and 1 if it ends first or with another status. For a
    session that has ended, the earlier statuses count as passed only if it is a batch session
    that succeeded.
    """
    session = await connection.client.get(f"/sessions/{segment(name)}")
    awaited = parse_status(until, "--until") if until else awaited_status(session)
    begin = time.monotonic()
    session = await wait_for_status(
        connection.client, session, awaited, timeout_seconds, show_progress=not as_json
    )
    error = failure_of(session)
    if until and awaited in ENDED:
        error = None if session["status"] == awaited else _end_of(session)
    if error is not None:
        raise error
    print_result(connection, session, time.monotonic() - begin, as_json=as_json)


@click.command(epilog=example("bai session bulk jobs.yaml"))
@click.argument("file", type=click.File(encoding="utf-8"))
@json_option
@connected
async def bulk(connection: Connection, file: Any, *, as_json: bool) -> None:
    """Create all sessions listed in a YAML or JSON file, or none of them.

    FILE (- for standard input) contains a list; each entry has the fields of a session in
    the REST API. The sessions may depend on each other by name.
    """
    response = await connection.client.post("/bulk-sessions", {"sessions": _entries(file)})
    if as_json:
        output.print_json(response)
    else:
        output.print_table(response["items"], CREATED_COLUMNS)


@click.command("set-priority", epilog=example("bai session set-priority train 50"))
@click.argument("name")
@click.argument("priority", type=int)
@json_option
@connected
async def set_priority(connection: Connection, name: str, priority: int, *, as_json: bool) -> None:
    """Change the priority of a pending session: 0 to 100, limited by the keypair policy."""
    path = f"/sessions/{segment(name)}"
    changed = await connection.client.patch(path, {"priority": priority})
    text = f"{changed['name']} has priority {changed['priority']}"
    if changed["queue_position"]:
        text += f", {position_text(changed['queue_position'], changed['resource_group'])}"
    output.print_done(text, changed, as_json=as_json)


@click.command("keep-alive", epilog=example("bai session keep-alive my-lab"))
@click.argument("name")
@json_option
@connected
async def keep_alive(connection: Connection, name: str, *, as_json: bool) -> None:
    """Restart the idle timeout of a session, and the windows of its idle checkers."""
    path = f"/sessions/{segment(name)}"
    session = await connection.client.get(path)
    checks, rule = _checks_of_use(session), session["end_rule"]
    if rule is not None and not (session["idle_ends_at"] or checks):
        when, why = units.relative_text(rule["ends_at"]), units.with_local_times(rule["reason"])
        raise Conflict(
            f"session {name} still stops {when}, used or not: {why}{_extension_hint(session)}",
            session=name,
        )
    # The keep-alive of the checkers restarts the idle timeout, too.
    restarted = {check["checker"] for check in checks if check["keep_alives_left"]}
    if restarted or (checks and not session["idle_ends_at"]):
        session = await connection.client.post(f"{path}/idle-checks/keep-alive")
    else:
        await connection.client.post(f"{path}/activity", {})
        session = await connection.client.get(path)
    output.print_done(_kept_text(name, restarted, session), session, as_json=as_json)


def _kept_text(name: str, restarted: Collection[str], session: Mapping[str, Any]) -> str:
    """Return until when a session is kept alive, and how often this can be repeated.

    ``restarted``: names of the idle checkers whose windows begin again.
    """
    effects, idle_ends_at = [], session["idle_ends_at"]
    if (ends_at := units.parse_time(idle_ends_at)) is not None:
        when = f"{units.relative(ends_at)} ({units.local(ends_at)})"
        effects.append(f"it stops {when} unless it is used")
    for check in _checks_of_use(session):
        if check["checker"] in restarted:
            left = check["keep_alives_left"]
            effects.append(
                f"the window of idle checker {check['checker']} begins again, "
                f"{left} keep-alive{'' if left == 1 else 's'} left"
            )
    if not effects:
        return f"{name} has no idle timeout"
    if (rule := session["end_rule"]) is not None and rule["ends_at"] != idle_ends_at:
        effects.append(_still_stops(session) + _extension_hint(session))
    return f"{name} is kept alive: {'; '.join(effects)}"


def _still_stops(session: Mapping[str, Any]) -> str:
    rule = session["end_rule"]
    when, why = units.relative_text(rule["ends_at"]), units.with_local_times(rule["reason"])
    return f"it still stops {when}: {why}"


def _extension_hint(session: Mapping[str, Any]) -> str:
    """Return the command that postpones the next stop of a session, if its lifetime ends first."""
    lifetimes = (TextTemplate.LIFETIME.code, TextTemplate.LIFETIME_EXTENDED.code)
    is_lifetime = session["end_rule"]["coded"]["code"] in lifetimes
    if not is_lifetime or not session["lifetime"]["addable_seconds"]:
        return ""
    return f"; extend it: bai session extend {session['name']}"


def _checks_of_use(session: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the checks that stop a session because it is not used."""
    return [
        check
        for check in session["idle_checks"]
        if check["type"] != CheckerType.LIFETIME and not check["is_dry_run"]
    ]


@click.command(epilog=example("bai session extend my-lab", "bai session extend my-lab --by 30min"))
@click.argument("name")
@click.option(
    "--by", metavar="DURATION",
    help="Time to add, for example 30min or 2h. Default: 1h, or what is left of the extension.",
)  # fmt: skip
@json_option
@connected
async def extend(connection: Connection, name: str, *, by: str | None, as_json: bool) -> None:
    """Extend the lifetime of a running session, as far as its keypair policy allows it."""
    path = f"/sessions/{segment(name)}"
    if by is None:
        lifetime = (await connection.client.get(path))["lifetime"]
        left = 0 if lifetime is None else lifetime["addable_seconds"]
        # Send the request even if nothing is left: the error message of the manager contains the
        # limit that was reached.
        seconds = min(left, _DEFAULT_EXTENSION_SECONDS) or _DEFAULT_EXTENSION_SECONDS
    else:
        seconds = parse_duration(by, "--by")
        if not 1 <= seconds <= MAX_EXTENSION_SECONDS:
            most = MAX_EXTENSION_SECONDS // 86400
            raise InvalidRequest(f"--by must be from 1 second to {most} days", field="--by")
    session = await connection.client.post(f"{path}/lifetime", {"seconds": seconds})
    output.print_done(_extended_text(session), session, as_json=as_json)


def _extended_text(session: Mapping[str, Any]) -> str:
    """Return when a session ends after an extension, and how much more is possible."""
    ends_at, left = units.parse_time(session["ends_at"]), session["lifetime"]["addable_seconds"]
    text = f"the lifetime of {session['name']} is extended"
    if ends_at is not None:
        text += f": it ends {units.relative(ends_at)} ({units.local(ends_at)})"
    text += f"; {units.duration(left) + ' of' if left else 'no'} extension left"
    rule = session["end_rule"]
    if rule is not None and rule["ends_at"] != session["ends_at"]:
        text += f"; {_still_stops(session)}"
    return text


@click.command(
    epilog=example(
        "bai session suspend my-lab", "bai session suspend my-lab --requeue --seconds 120"
    )
)
@click.argument("name")
@click.option(
    "--seconds", type=click.IntRange(0, MAX_SECONDS), default=DEFAULT_SECONDS, show_default=True,
    help="Maximum time to save the session before it is stopped.",
)  # fmt: skip
@click.option(
    "--requeue", is_flag=True, help="Resume the session as soon as its resources are free."
)
@click.option("--no-variables", is_flag=True, help="Do not save the variables of notebooks.")
@json_option
@connected
async def suspend(
    connection: Connection,
    name: str,
    *,
    seconds: int,
    requeue: bool,
    no_variables: bool,
    as_json: bool,
) -> None:
    """Save a running session, stop it and free its resources; its home is kept.

    Open JupyterLab pages save their documents, the hook ~/.bai/on-preempt runs, and the
    variables of notebooks are saved. `bai session resume` starts the session again with the
    same name, folders, files and address.
    """
    body = {"seconds": seconds, "requeue": requeue, "keep_variables": not no_variables}
    session = await connection.client.post(f"/sessions/{segment(name)}/suspend", body)
    text = f"{session['name']} is saved, and stopped within {seconds} s"
    output.print_done(text, session, as_json=as_json)


@click.command(epilog=example("bai session resume my-lab"))
@click.argument("name")
@json_option
@connected
async def resume(connection: Connection, name: str, *, as_json: bool) -> None:
    """Put a suspended session back into the queue.

    The session can run only on the agent that has its home. `bai session wait` waits until it runs.
    """
    session = await connection.client.post(f"/sessions/{segment(name)}/resume")
    text = f"{session['name']} is {session['status']}"
    output.print_done(text, session, as_json=as_json)


@click.command(
    "exclude-idle-checks",
    epilog=example(
        "bai session exclude-idle-checks my-lab", "bai session exclude-idle-checks my-lab --undo"
    ),
)
@click.argument("name")
@click.option("--undo", is_flag=True, help="Include the session again.")
@json_option
@connected
async def exclude_idle_checks(
    connection: Connection, name: str, *, undo: bool, as_json: bool
) -> None:
    """Exclude a session from the idle checkers that allow it."""
    path = f"/sessions/{segment(name)}/idle-checks/exclusion"
    session = await connection.client.put(path, {"is_excluded": not undo})
    names = [c["checker"] for c in session["idle_checks"] if c["allows_exclusion"]]
    verb = "judged by" if undo else "excluded from"
    output.print_done(f"{name} is {verb} {', '.join(names)}", session, as_json=as_json)


@click.command("callback-secret", epilog=example("bai session callback-secret"))
@click.option(
    "--access-key", metavar="KEY", help="Access key of one of your keypairs. Default: the main one."
)
@json_option
@connected
async def callback_secret(connection: Connection, *, access_key: str | None, as_json: bool) -> None:
    """Print the secret that receivers use to verify your sessions' callbacks."""
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
    """Show all sessions that a session depends on, also indirectly, and all that depend on it."""
    found = await connection.client.get(f"/sessions/{segment(name)}/dependency-graph")
    if as_json:
        output.print_json(found)
        return
    names = {item["id"]: item["name"] for item in found["items"]}
    rows = [
        {**item, "depends_on": [names.get(key, key) for key in item["depends_on"]]}
        for item in found["items"]
    ]
    output.print_table(rows, GRAPH_COLUMNS)
    if len(rows) == 1:
        output.note(f"no dependencies; create one: bai session create NAME --depends-on {name}")


def parse_status(text: str, option: str) -> Status:
    """Return the status given with ``option``; upper and lower case are equivalent.

    Raises
    ------
    click.BadParameter
        If ``text`` is not a status.
    """
    try:
        return Status(text.strip().upper())
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a status; use one of {', '.join(Status)}."
            f"{did_you_mean(text, Status)}",
            param_hint=option,
        ) from None


def _entries(file: Any) -> list[Any]:
    try:
        # The YAML parser reads JSON, too.
        entries = load_yaml(file)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file.name} cannot be read: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidRequest(
            f"{file.name} must contain a list of sessions, each a mapping with at least a name"
        )
    return entries
