"""Sessions: start, watch, stop, open."""

from __future__ import annotations

import asyncio
import os
import time
import webbrowser
from typing import Any

import click

from bai_services.core.cluster.image_labels import HIGHEST_PORT, LOWEST_PORT
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.resources import parse_amount
from bai_services.core.scheduling.placement import Designation, Mode
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.lifecycle import ENDED, SessionType, Status

from .. import output, units
from ..apps.shares import share, shares, unshare
from ..command import Choice, Connection, connected, example, json_option, pairs, segment
from .commands import cp, exec_
from .devices import devices
from .info import info
from .kinds import (
    bulk,
    callback_secret,
    failed,
    goal_of,
    graph,
    keep_alive,
    read_status,
    set_priority,
    wait,
)
from .terminal import attach
from .waiting import print_created, print_result, wait_for_status
from .watch import events, follow_log, top
from .why import why

MOUNT_FORM = "FOLDER[/DIRECTORY][:PATH[:ro|rw]]"
COLUMNS = ("name", "status", "created_at", "resources", "image", "project", "owner", "status_info")
TYPES = (SessionType.INTERACTIVE.value, SessionType.BATCH.value)
LIVE_FILTER = ",".join(sorted(set(Status) - ENDED))


def read_amounts(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Return the amounts of ``-r``, checked before anything is asked of the manager."""
    amounts = pairs(texts, "-r", "-r cpu=1")
    for slot, text in amounts.items():
        parse_amount(slot, text)
    return amounts


def read_memory(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        parse_amount("mem", text)
    return text


def read_environ(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    return pairs(texts, "-e", "-e SEED=1")


def read_secrets(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> dict[str, str]:
    """Return the variables of ``--secret-env`` with the values that bai's own environment has."""
    if missing := [name for name in names if name not in os.environ]:
        raise click.UsageError(
            f"--secret-env {missing[0]}: the environment of bai has no such variable; set it "
            "there, its value is not given on the command line"
        )
    return {name: os.environ[name] for name in names}


def read_mounts(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[dict[str, str]]:
    return [read_mount(text) for text in texts]


def read_mount(text: str) -> dict[str, str]:
    """Return what ``FOLDER[/DIRECTORY][:PATH[:ro|rw]]`` means.

    Examples: ``data`` and ``data::ro`` leave the path to the manager; ``data/raw/2024`` is a
    directory of the folder ``data``.

    Raises
    ------
    InvalidRequest
        If it has another form.
    """
    inside, *rest = text.split(":")
    folder, _, subpath = inside.partition("/")
    path, permission = (*rest, "", "")[:2]
    if not folder or len(rest) > 2 or permission not in ("", "ro", "rw"):
        raise InvalidRequest(
            f"--mount {text!r} is not {MOUNT_FORM}; write for instance data:/home/work/data:ro"
        )
    mount = {"vfolder": folder, "path": path, "permission": permission, "subpath": subpath}
    return {key: value for key, value in mount.items() if value}


@click.group()
def session() -> None:
    """Start, watch and stop sessions."""


for _command in (
    attach,
    cp,
    events,
    exec_,
    top,
    share,
    shares,
    unshare,
    bulk,
    callback_secret,
    devices,
    graph,
    info,
    keep_alive,
    set_priority,
    wait,
    why,
):
    session.add_command(_command)


@session.command(
    epilog=example(
        "bai session create my-lab --wait",
        "bai session create small -r cpu=2 -r mem=4g -r cuda.shares=0.5 --mount data",
        "bai session create train --command 'python train.py' --wait",
    )
)
@click.argument("name")
@click.option("--project", metavar="NAME", help="Default: the only one, or the one named default.")
@click.option("--image", metavar="NAME", help="Name or alias; default: the project's.")
@click.option(
    "-r", "--resource", "resources", metavar="SLOT=AMOUNT", multiple=True,
    callback=read_amounts, help="For instance cpu=1, mem=1g, cuda.shares=0.25; may be repeated.",
)  # fmt: skip
@click.option("--preset", metavar="NAME", help="Take the amounts of a preset.")
@click.option("--resource-group", metavar="NAME", help="Where to run; default: where it may.")
@click.option(
    "--mount", "mounts", metavar=MOUNT_FORM, multiple=True, callback=read_mounts,
    help="For instance data:/home/work/data:ro, or data/raw for a directory of it; again.",
)  # fmt: skip
@click.option(
    "-e", "--env", "environ", metavar="KEY=VALUE", multiple=True,
    callback=read_environ, help="Environment; may be repeated.",
)  # fmt: skip
@click.option(
    "--secret-env", "secrets", metavar="KEY", multiple=True, callback=read_secrets,
    help="A variable that nobody reads back; its value is that of bai's environment; repeatable.",
)  # fmt: skip
@click.option(
    "--shared-memory", metavar="AMOUNT", callback=read_memory,
    help="Size of /dev/shm, for instance 256m.",
)  # fmt: skip
@click.option("--type", type=Choice(TYPES), help="interactive (default) or batch.")
@click.option(
    "--command", "startup_command", metavar="TEXT",
    help="What a batch session runs, for instance 'python train.py'; makes it one.",
)  # fmt: skip
@click.option(
    "--starts-at", metavar="TIME",
    help="A batch session starts not before: 2030-01-31T09:00+09:00, or from now on: 10min.",
)  # fmt: skip
@click.option(
    "--batch-timeout", metavar="SPAN", help="Ends a batch session that runs longer: 90, 2h, 1h30m."
)
@click.option(
    "--depends-on", "dependencies", metavar="NAME", multiple=True,
    help="Starts after the success of that session of yours; may be repeated.",
)  # fmt: skip
@click.option(
    "--cluster-size", type=click.IntRange(min=1), metavar="N",
    help="A session of N kernels (main1, sub1 …) of these amounts each; all start, or none.",
)  # fmt: skip
@click.option(
    "--cluster-mode", type=Choice([mode.value for mode in Mode]),
    help="All kernels on one machine (single-node, default) or each where it fits.",
)  # fmt: skip
@click.option(
    "--agent", "agent_list", metavar="AGENT", multiple=True,
    help="Only on this machine; may be repeated; for administrators.",
)  # fmt: skip
@click.option(
    "--agent-selection", type=Choice([one.value for one in Designation]),
    help="strict: on no other machine (default); preferred: these first.",
)  # fmt: skip
@click.option(
    "--preopen", "preopen_ports", metavar="PORT", type=click.IntRange(LOWEST_PORT, HIGHEST_PORT),
    multiple=True, help="You will have something listen there; shown as an app; may be repeated.",
)  # fmt: skip
@click.option(
    "--callback-url", metavar="URL", help="Is told of each change of the session's status (POST)."
)
@click.option("--template", metavar="NAME", help="Start from a template; options go before it.")
@click.option("--reuse", is_flag=True, help="Take the live session of that name, whatever it is.")
@click.option("--enqueue-only", is_flag=True, help="Return at once, whether there is room or not.")
@click.option("--priority", type=int, help="Higher goes first; the policy says how high.")
@click.option(
    "--wait", is_flag=True, help="Return when the session can be used; a batch one: has ended."
)
@click.option(
    "--timeout", "timeout_seconds", type=click.FloatRange(min=0), metavar="SECONDS",
    help="With --wait: how long at most. The session goes on waiting.",
)  # fmt: skip
@json_option
@connected
async def create(
    connection: Connection,
    name: str,
    *,
    project: str | None,
    secrets: dict[str, str],
    wait: bool,
    timeout_seconds: float | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Start a session, or queue it until there is room.

    The same name with the same content again answers with the session that is there.
    """
    if timeout_seconds is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if wait and asked["enqueue_only"]:
        raise click.UsageError("--wait and --enqueue-only exclude each other")
    if twice := sorted(secrets.keys() & asked["environ"].keys()):
        raise click.UsageError(
            f"{twice[0]} is given with --env and with --secret-env; once will do"
        )
    asked["environ"] = {**asked["environ"], **secrets}
    asked["secret_environ"] = sorted(secrets)
    body = {key: value for key, value in asked.items() if value not in (None, False, {}, [], ())}
    if "startup_command" in body:
        body.setdefault("type", SessionType.BATCH)
    body["name"] = name
    if project or "template" not in body:
        body["project"] = project or await _default_project(connection)
    found = await connection.client.post("/sessions", body)
    if not wait:
        print_created(connection, found, as_json=as_json)
        return
    begin = time.monotonic()
    found = await wait_for_status(
        connection.client, found, goal_of(found), timeout_seconds, is_reported=not as_json
    )
    if (error := failed(found)) is not None:
        raise error
    print_result(connection, found, time.monotonic() - begin, as_json=as_json)


@session.command("ls", epilog=example("bai session ls", "bai session ls --all --sort -created_at"))
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Also those that have ended.")
@click.option("--project", metavar="NAME", help="Only of this project.")
@click.option("--status", metavar="STATUS[,…]", help="Only in these statuses.")
@click.option("--sort", metavar="FIELD[,…]", help="With - in front for descending.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Number of entries.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="First entry.")
@json_option
@connected
async def list_(
    connection: Connection,
    *,
    name: str | None,
    everything: bool,
    project: str | None,
    status: str | None,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List sessions; with NAME all of that name, also those that have ended."""
    query: dict[str, Any] = {"limit": limit, "offset": offset}
    if status:
        query["status__in"] = ",".join(read_status(one, "--status") for one in status.split(","))
    elif not (everything or name):
        query["status__in"] = LIVE_FILTER
    query |= {k: v for k, v in {"name": name, "project": project, "sort": sort}.items() if v}
    page = await connection.client.get("/sessions", **query)
    if not as_json:
        for item in page["items"]:
            item["resources"] = units.slots(item["requested"])
    empty = "no sessions; start one: bai session create NAME --wait"
    if not (everything or name or status):
        empty += " (those that have ended: bai session ls --all)"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)


@session.command(
    epilog=example("bai session logs train --follow", "bai session logs train --lines 100 --times")
)
@click.argument("name")
@click.option("--kernel", metavar="NAME", default=MAIN_HOST, show_default=True,
              help="Which kernel of a cluster session, for instance sub1.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on until the session has ended.")
@click.option("--times", is_flag=True, help="Begin each line with its time, in UTC.")
@click.option("--lines", metavar="COUNT", type=click.IntRange(min=1), help="Only the last ones.")
@click.option("--search", metavar="WORDS", help="Only lines that hold WORDS, in whatever case.")
@json_option
@connected
async def logs(
    connection: Connection,
    name: str,
    *,
    kernel: str,
    follow: bool,
    times: bool,
    lines: int | None,
    search: str | None,
    as_json: bool,
) -> None:
    """Print what the session's container wrote."""
    if follow and (as_json or lines or search):
        raise click.UsageError("--follow excludes --json, --lines and --search")
    asked = {"kernel": kernel, "times": "true" if times else "", "lines": lines, "search": search}
    query: dict[str, Any] = {option: value for option, value in asked.items() if value}
    if follow:
        await follow_log(connection, name, query)
        return
    answer = await connection.client.get(f"/sessions/{segment(name)}/logs", **query)
    if as_json:
        output.print_json(answer)
    else:
        click.echo(answer["log"], nl=not answer["log"].endswith("\n"))


@session.command(epilog=example("bai session rm my-lab", "bai session rm train-1 train-2 --wait"))
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="End it at once, without asking it to stop.")
@click.option("--wait", is_flag=True, help="Return when it has ended.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="With --wait: at most.",
)
@json_option
@connected
async def rm(
    connection: Connection,
    names: tuple[str, ...],
    *,
    force: bool,
    wait: bool,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    """Stop sessions. A stopped session stays in the list of --all."""
    stopped = [await _stop(connection, name, force=force) for name in names]
    if wait:
        stopped = [
            await wait_for_status(connection.client, found, Status.TERMINATED, timeout_seconds)
            for found in stopped
        ]
    if as_json:
        output.print_json(stopped[0] if len(names) == 1 else {"items": stopped})
        return
    for found in stopped:
        output.print_done(f"{found['name']} is {found['status']}", found, as_json=False)


@session.command("open", epilog=example("bai session open my-lab"))
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@json_option
@connected
async def open_(connection: Connection, name: str, *, no_browser: bool, as_json: bool) -> None:
    """Print the session's address and open it in the browser.

    A session that does not run yet has a page that shows how far it is.
    """
    found = await connection.client.get(f"/sessions/{segment(name)}")
    if found["status"] in ENDED:
        raise Conflict(f"session {name} is {found['status']}; there is nothing to open")
    # The server of a batch session shows nothing; its page does.
    is_usable = found["status"] == Status.RUNNING and found["type"] != SessionType.BATCH
    address = connection.address(found["url"] if is_usable else found["page"])
    output.print_done(address, {"url": address, "status": found["status"]}, as_json=as_json)
    if not (no_browser or as_json):
        await asyncio.to_thread(webbrowser.open, address)


async def _default_project(connection: Connection) -> str:
    me = await connection.client.get("/me")
    names = [project["name"] for project in me["projects"]]
    if len(names) == 1:
        return str(names[0])
    if "default" in names:
        return "default"
    if not names:
        raise InvalidRequest("you are in no project; ask the administrator of your domain")
    raise InvalidRequest(f"say which project: --project {' | '.join(names)}", projects=names)


async def _stop(connection: Connection, name: str, *, force: bool) -> Any:
    """Stop one session and return it; one that has ended already is as it should be."""
    found = await connection.client.get(f"/sessions/{segment(name)}")
    if found["status"] in ENDED:
        raise NotFound(f"session {name} has ended already: {found['status']}")
    query = {"force": "true"} if force else {}
    # By id: another session of that name may have begun meanwhile.
    answer = await connection.client.delete(f"/sessions/{found['id']}", **query)
    return answer or await connection.client.get(f"/sessions/{found['id']}")
