"""`bai session`: create, list, stop and open sessions, and read their logs."""

from __future__ import annotations

import asyncio
import time
import webbrowser
from collections.abc import Mapping
from typing import Any

import click

from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.lifecycle import ENDED, SessionType, Status

from .. import output, units
from ..apps.shares import share, shares, unshare
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
from .commit import commit
from .control import (
    awaited_status,
    bulk,
    callback_secret,
    exclude_idle_checks,
    extend,
    failure_of,
    graph,
    keep_alive,
    parse_status,
    resume,
    set_priority,
    suspend,
    wait,
)
from .devices import devices
from .exec import cp, exec_
from .history import history
from .info import info, status_detail, status_text
from .live_output import events, follow_log, top
from .log_search import search_logs
from .preview import print_preview
from .resize import resize
from .spec_options import request_fields, spec_options
from .terminal import attach
from .usage import usage
from .waiting import after_first_pass, print_created, print_result, wait_for_status
from .why import why

COLUMNS = ("name", "status", "created_at", "resources", "image", "project", "owner", "status_info")
LIVE_FILTER = ",".join(sorted(set(Status) - ENDED))


@command_group()
def session() -> None:
    """Create, watch and stop sessions."""


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
    commit,
    devices,
    graph,
    history,
    info,
    exclude_idle_checks,
    extend,
    keep_alive,
    resize,
    resume,
    set_priority,
    suspend,
    usage,
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
@spec_options
@click.option(
    "--template", metavar="NAME", help="Start from a template; other options override its fields."
)
@click.option(
    "--enqueue-only", is_flag=True,
    help="Return as soon as the session is queued (the default). "
    "Cannot be combined with --wait or --timeout.",
)  # fmt: skip
@click.option(
    "--preview", is_flag=True,
    help="Do not create the session; show when it would start and how much of each quota it would "
    "use.",
)  # fmt: skip
@click.option(
    "--wait", is_flag=True,
    help="Wait until the session is running, or a batch session has ended.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_seconds", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Maximum wait; implies --wait. The session itself is not affected. Default: no limit.",
)  # fmt: skip
@json_option
@connected
async def create(
    connection: Connection,
    name: str,
    *,
    template: str | None,
    enqueue_only: bool,
    preview: bool,
    wait: bool,
    timeout_seconds: float | None,
    as_json: bool,
    **spec: Any,
) -> None:
    """Create a session; it stays in the queue until it can start.

    The command is idempotent: with the same name and the same options it returns
    the session that already exists.
    """
    wait = wait or timeout_seconds is not None
    if wait and enqueue_only:
        raise click.UsageError("--enqueue-only cannot be combined with --wait or --timeout")
    if preview and (wait or enqueue_only):
        raise click.UsageError(
            "--preview creates no session: omit --wait, --timeout and --enqueue-only"
        )
    body = {"name": name, **request_fields(spec)}
    if template is not None:
        body["template"] = template
    elif not body.get("project") and not body.get("owner"):
        body["project"] = await _default_project(connection)
    if enqueue_only:
        body["enqueue_only"] = True
    if preview:
        print_preview(await connection.client.post("/sessions/preview", body), as_json=as_json)
        return
    found = await connection.client.post("/sessions", body)
    if not wait:
        if not (as_json or enqueue_only):
            found = await after_first_pass(connection.client, found)
        print_created(connection, found, as_json=as_json)
        return
    begin = time.monotonic()
    found = await wait_for_status(
        connection.client, found, awaited_status(found), timeout_seconds, show_progress=not as_json
    )
    if (error := failure_of(found)) is not None:
        raise error
    print_result(connection, found, time.monotonic() - begin, as_json=as_json)


@session.command("ls", epilog=example("bai session ls", "bai session ls --all --sort -created_at"))
@click.argument("name", required=False)
@click.option("--all", "include_ended", is_flag=True, help="Include sessions that have ended.")
@click.option("--project", metavar="NAME", help="List only sessions of this project.")
@click.option("--status", metavar="STATUS[,…]", help="List only sessions with these statuses.")
@page_options
@json_option
@connected
async def list_(
    connection: Connection,
    *,
    name: str | None,
    include_ended: bool,
    project: str | None,
    status: str | None,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the live sessions that you may see; with NAME, live and ended sessions of that name."""
    query = page_query(sort, limit, offset)
    if status:
        query["status__in"] = ",".join(parse_status(one, "--status") for one in status.split(","))
    elif not (include_ended or name):
        query["status__in"] = LIVE_FILTER
    query |= {key: value for key, value in {"name": name, "project": project}.items() if value}
    page = await connection.client.get("/sessions", **query)
    if not as_json:
        for item in page["items"]:
            item["resources"] = _size_text(item)
            item["status"] = status_text(item)
            item["status_info"] = status_detail(item)
    if name or project or status:
        empty = "no session matches the filters"
    else:
        empty = "no sessions; create one: bai session create NAME --wait"
    if not (include_ended or name or status):
        empty += " (list ended sessions: bai session ls --all)"
    # A coming stop must be visible on a narrow terminal, too.
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty, kept=("status_info",))


@session.command(
    epilog=example(
        "bai session logs train --follow",
        "bai session logs train --lines 100 --times",
        "bai session logs --search 'out of memory'",
    )
)
@click.argument("name", required=False)
@click.option("--kernel", metavar="NAME", default=MAIN_HOST, show_default=True,
              help="Kernel of a cluster session, for example sub1.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the session ends.")
@click.option("--times", is_flag=True, help="Start each line with its time in UTC.")
@click.option(
    "--lines", metavar="COUNT", type=click.IntRange(min=1), help="Print only the last COUNT lines."
)
@click.option(
    "--search",
    metavar="TEXT",
    help="Print only lines that contain TEXT (case-insensitive). Without NAME: search the logs of "
    "your ended sessions.",
)
@json_option
@connected
async def logs(
    connection: Connection,
    name: str | None,
    *,
    kernel: str,
    follow: bool,
    times: bool,
    lines: int | None,
    search: str | None,
    as_json: bool,
) -> None:
    """Print the log of a session: the output of one kernel."""
    if follow and (as_json or lines or search):
        raise click.UsageError("--follow cannot be combined with --json, --lines or --search")
    if name is None:
        if search is None or follow or times or lines:
            raise click.UsageError("enter the NAME of a session, or only --search TEXT")
        await search_logs(connection.client, search, as_json=as_json)
        return
    options = {"kernel": kernel, "times": "true" if times else "", "lines": lines, "search": search}
    query: dict[str, Any] = {option: value for option, value in options.items() if value}
    if follow:
        await follow_log(connection, name, query)
        return
    response = await connection.client.get(f"/sessions/{segment(name)}/logs", **query)
    if as_json:
        output.print_json(response)
    elif log := response["log"]:
        output.print_log(log if log.endswith("\n") else log + "\n")
    else:
        output.note("no line contains the text" if search else "no output yet")


@session.command(epilog=example("bai session rm my-lab", "bai session rm train-1 train-2 --wait"))
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Kill the session without a graceful shutdown.")
@click.option("--wait", is_flag=True, help="Wait until the sessions have ended.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Maximum wait for each session; implies --wait. Default: no limit.",
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
    """Stop sessions. `bai session ls --all` still lists them.

    If one of the sessions does not exist or has already ended, no session is stopped.
    """
    live = [await _find_live(connection, name) for name in names]
    stopped = [await _stop(connection, found["id"], force=force) for found in live]
    if wait or timeout_seconds is not None:
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
@click.option("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@json_option
@connected
async def open_(connection: Connection, name: str, *, no_browser: bool, as_json: bool) -> None:
    """Print the URL of a session and open it in the browser.

    While the session is not running, the URL leads to a page that shows its progress.
    """
    found = await connection.client.get(f"/sessions/{segment(name)}")
    if found["status"] in ENDED:
        raise Conflict(f"session {name} is {found['status']}; there is nothing to open")
    # The page of a batch session shows status and log; ``bai app`` opens its apps.
    is_usable = found["status"] == Status.RUNNING and found["type"] != SessionType.BATCH
    address = connection.address(found["url"] if is_usable else found["page"])
    output.print_done(address, {"url": address, "status": found["status"]}, as_json=as_json)
    if not (no_browser or as_json):
        await asyncio.to_thread(webbrowser.open, address)


def _size_text(session: Mapping[str, Any]) -> str:
    """Return the requested resources; of a pending elastic session also what it prefers."""
    text, elasticity = units.slots(session["requested"]), session["elasticity"]
    if elasticity is None or session["status"] != Status.PENDING:
        return text
    least, most = elasticity["minimum"], elasticity["preferred"]
    more = {slot: amount for slot, amount in most.items() if least.get(slot) != amount}
    return f"{text} (preferred: {units.slots(more)})"


async def _default_project(connection: Connection) -> str:
    me = await connection.client.get("/me")
    names = [project["name"] for project in me["projects"]]
    if len(names) == 1:
        return str(names[0])
    if "default" in names:
        return "default"
    if not names:
        raise InvalidRequest("you are not a member of any project; ask your domain administrator")
    raise InvalidRequest(
        f"you have several projects; pass --project {' | '.join(names)}", projects=names
    )


async def _find_live(connection: Connection, name: str) -> Any:
    """Return a session.

    Raises
    ------
    NotFound
        If there is no live session of that name.
    """
    found = await connection.client.get(f"/sessions/{segment(name)}")
    if found["status"] in ENDED:
        raise NotFound(f"session {name} has already ended: {found['status']}")
    return found


async def _stop(connection: Connection, session_id: str, *, force: bool) -> Any:
    """Stop a session by id, because a newer session can have its name; return the session."""
    query = {"force": "true"} if force else {}
    response = await connection.client.delete(f"/sessions/{session_id}", **query)
    return response or await connection.client.get(f"/sessions/{session_id}")
