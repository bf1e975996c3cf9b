"""`bai service`: create, change and watch endpoints; their revisions, replicas and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from bai_services.core.errors import BaiError
from bai_services.core.serving.settings import MAX_REPLICAS

from .. import output
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
from ..usage.reports import TOKEN_TEXTS, endpoint_usage
from .options import (
    absolute_url,
    endpoint_path,
    given_fields,
    limit_options,
    limits_request,
    revision_request,
    settings_options,
)
from .scaling import (
    given_scaling,
    measure_text,
    rule_text,
    scaling_options,
    schedule_text,
)
from .tokens import token
from .trials import check, try_

COLUMNS = ("name", "status", "ready", "revision", "is_public", "owner", "project", "problem")
_REVISION_COLUMNS = (
    "number", "created_at", "variant", "outcome", "requests", "errors", "p99_ms", "reason",
)  # fmt: skip
_REPLICA_COLUMNS = ("id", "revision", "phase", "session_status", "agent", "changed_at", "reason")
_CHANGE_COLUMNS = ("at", "phase", "reason")
_ACTION_COLUMNS = ("at", "actor", "action", "outcome")
_USAGE_COLUMNS = ("day", "token", "requests", "input_tokens", "output_tokens")
_SCALING_COLUMNS = ("created_at", "former", "replicas", "reason")
# Last lines of the output of a failed replica in `bai service info`.
_SHOWN_LINES = 5
_VARIANT_COLUMNS = ("name", "title", "port", "health_path", "is_tested")


@command_group()
def service() -> None:
    """Serve models: endpoints with replicas behind one URL.

    A change of the settings creates a revision, which replaces the previous one step by step.
    """


for command in (token, check, try_, endpoint_usage):
    service.add_command(command)


@service.command(
    epilog=example(
        "bai service create hello --variant cmd "
        "--command 'python3 -m http.server $BAI_SERVICE_PORT' -r cpu=1 -r mem=1g",
        "bai service create llama --variant vllm --model-folder llama-3 -r cuda.device=1",
        "bai service create mine --definition model-definition.yaml --model-folder mine",
        "bai service create chat --variant vllm --model-folder llama-3 --min 0 --max 4 --target 8",
    )
)
@click.argument("name")
@click.option("--project", metavar="NAME", help="Project that is charged.")
@click.option("--replicas", type=click.IntRange(0, MAX_REPLICAS), help="Default: 1.")
@scaling_options
@settings_options
@limit_options
@json_option
@connected
async def create(
    connection: Connection,
    name: str,
    *,
    project: str | None,
    replicas: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Create an endpoint."""
    body = given_fields({"name": name, "project": project, "replicas": replicas})
    body |= limits_request(options) | given_scaling(options) | revision_request(options)
    made = await connection.client.post("/endpoints", body)
    url = absolute_url(connection, made["url"])
    output.print_done(f"endpoint {name} created: {url}", made, as_json=as_json)


@service.command("list", epilog=example("bai service list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the endpoints that you may see."""
    page = await connection.client.get("/endpoints", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["ready"] = f"{item['ready_replicas']}/{item['replicas']}"
            item["revision"] = item["active_revision"] or item["target_revision"]
    output.print_page(
        page,
        COLUMNS,
        as_json=as_json,
        empty="no endpoints yet; create one: bai service create NAME",
    )


@service.command(epilog=example("bai service info hello"))
@click.argument("name")
@json_option
@connected
async def info(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show an endpoint."""
    found = await connection.client.get(endpoint_path(name))
    if not as_json:
        del found["problem_coded"], found["scaling_reason_coded"]
        found["url"] = absolute_url(connection, found["url"])
        found["weights"] = await _weights_text(connection, name, found["weights"])
        if found["scaling"] is not None:
            rule = found["scaling"]
            found |= {"scaling": rule_text(rule), "measure": measure_text(rule)}
            if rule["schedule"]:
                found["schedule"] = schedule_text(rule)
    output.print_fields(found, as_json=as_json)
    if found["problem"] and not as_json:
        await _note_log(connection, name, found["owner"])


async def _note_log(connection: Connection, name: str, owner: str) -> None:
    """Print the end of the output of the last replica that has ended, and name the command that
    prints all of it.

    For users other than the owner, only the command is printed, because each access to another
    user's log is recorded.
    """
    path = f"{endpoint_path(name)}/replicas"
    page = await connection.client.get(path, phase="ended", sort="-changed_at", limit=1)
    for replica in page["items"]:
        output.note(f"output of the last replica that has ended: bai session logs {replica['id']}")
        if (await connection.client.get("/me"))["username"] != owner:
            continue
        try:
            log = f"/sessions/{segment(replica['id'])}/logs"
            found = await connection.client.get(log, lines=_SHOWN_LINES)
        except BaiError:
            continue  # for example because the agent does not respond
        for line in found["log"].splitlines():
            output.note(f"  {line}")


async def _weights_text(connection: Connection, name: str, weights: Mapping[str, int]) -> str:
    """Return the shares of the revisions with their numbers."""
    page = await connection.client.get(f"{endpoint_path(name)}/revisions")
    numbers = {each["id"]: each["number"] for each in page["items"]}
    total = sum(weights.values()) or 1
    return ", ".join(
        f"revision {numbers.get(key, key)}: {100 * weight / total:g} %"
        for key, weight in weights.items()
    )


@service.command(
    short_help="Change an endpoint, or create a revision.",
    epilog=example(
        "bai service update hello --command 'python3 server.py'",
        "bai service update hello --min 1 --max 4 --target 8",
    ),
)
@click.argument("name")
@click.option(
    "--apply/--save-only",
    "is_applied",
    default=True,
    help="Roll out the new revision now, or only save it (then: bai service rollback). Default: "
    "--apply.",
)
@scaling_options
@settings_options
@limit_options
@json_option
@connected
async def update(
    connection: Connection, name: str, *, is_applied: bool, as_json: bool, **options: Any
) -> None:
    """Change limits or the autoscaling of an endpoint, or create a revision with other settings.

    Options of the autoscaling that are not given keep their values.
    """
    limits, revision = limits_request(options) | given_scaling(options), revision_request(options)
    if not revision.keys() and not limits:
        raise click.UsageError("no option is given, so there is nothing to change")
    made: dict[str, Any] = {}
    if limits:
        made = await connection.client.patch(endpoint_path(name), limits)
    if revision:
        body = {**revision, "is_applied": is_applied}
        made = await connection.client.post(f"{endpoint_path(name)}/revisions", body)
    text = ""
    if revision and is_applied:
        text = f"; revision {made['target_revision']} is being rolled out"
    elif revision:
        text = f"; the new revision is saved (bai service rollout {name})"
    output.print_done(f"endpoint {name} changed{text}", made, as_json=as_json)


@service.command(epilog=example("bai service scale hello 3"))
@click.argument("name")
@click.argument("replicas", type=click.IntRange(0, MAX_REPLICAS))
@json_option
@connected
async def scale(connection: Connection, name: str, replicas: int, *, as_json: bool) -> None:
    """Set a fixed number of replicas, which ends autoscaling."""
    made = await connection.client.patch(endpoint_path(name), {"replicas": replicas})
    output.print_done(f"number of replicas of endpoint {name}: {replicas}", made, as_json=as_json)


@service.command(
    short_help="List the last revisions of an endpoint.",
    epilog=example("bai service rollout hello"),
)
@click.argument("name")
@page_options
@json_option
@connected
async def rollout(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the last revisions of an endpoint, and how their rollouts ended."""
    path = f"{endpoint_path(name)}/revisions"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["variant"] = item["settings"]["variant"]
    output.print_page(page, _REVISION_COLUMNS, as_json=as_json, empty="no revisions")


@service.command(epilog=example("bai service rollback hello 3"))
@click.argument("name")
@click.argument("revision", type=click.IntRange(1))
@json_option
@connected
async def rollback(connection: Connection, name: str, revision: int, *, as_json: bool) -> None:
    """Roll out an earlier or saved revision."""
    made = await connection.client.post(f"{endpoint_path(name)}/rollback", {"revision": revision})
    output.print_done(
        f"revision {revision} of endpoint {name} is being rolled out", made, as_json=as_json
    )


@service.command(
    short_help="Continue a rollout that waits for it.", epilog=example("bai service promote hello")
)
@click.argument("name")
@json_option
@connected
async def promote(connection: Connection, name: str, *, as_json: bool) -> None:
    """Continue a blue-green or canary rollout that waits for a promotion."""
    made = await connection.client.post(f"{endpoint_path(name)}/promotion", {})
    revision = made["target_revision"]
    output.print_done(f"revision {revision} of endpoint {name} promoted", made, as_json=as_json)


@service.command(
    short_help="Stop all replicas of an endpoint.", epilog=example("bai service pause hello")
)
@click.argument("name")
@json_option
@connected
async def pause(connection: Connection, name: str, *, as_json: bool) -> None:
    """Stop all replicas of an endpoint and refuse its requests, until it is resumed."""
    made = await connection.client.patch(endpoint_path(name), {"is_paused": True})
    output.print_done(f"endpoint {name} paused", made, as_json=as_json)


@service.command(epilog=example("bai service resume hello"))
@click.argument("name")
@json_option
@connected
async def resume(connection: Connection, name: str, *, as_json: bool) -> None:
    """Resume a paused endpoint."""
    made = await connection.client.patch(endpoint_path(name), {"is_paused": False})
    output.print_done(f"endpoint {name} resumed", made, as_json=as_json)


@service.command(
    short_help="List the replicas of an endpoint.", epilog=example("bai service replicas hello")
)
@click.argument("name")
@page_options
@json_option
@connected
async def replicas(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the replicas of an endpoint, including recently ended ones."""
    path = f"{endpoint_path(name)}/replicas"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _REPLICA_COLUMNS, as_json=as_json, empty="no replicas")


@service.command(
    short_help="List the phases of a replica.",
    epilog=example("bai service history hello 6f1b2c3d-0000-4000-8000-000000000000"),
)
@click.argument("name")
@click.argument("replica")
@page_options
@json_option
@connected
async def history(
    connection: Connection,
    name: str,
    replica: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the phases of a replica, the latest first; REPLICA is an id."""
    path = f"{endpoint_path(name)}/replicas/{segment(replica)}/history"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _CHANGE_COLUMNS, as_json=as_json, empty="no changes yet")


@service.command(
    short_help="List the actions on an endpoint.", epilog=example("bai service log hello")
)
@click.argument("name")
@page_options
@json_option
@connected
async def log(
    connection: Connection, name: str, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the actions on an endpoint, and who took them."""
    path = f"{endpoint_path(name)}/audit-log"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _ACTION_COLUMNS, as_json=as_json, empty="no actions")


@service.command(
    short_help="List the last changes by autoscaling.", epilog=example("bai service scalings hello")
)
@click.argument("name")
@page_options
@json_option
@connected
async def scalings(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the last changes of the number of replicas by autoscaling, and their reasons."""
    path = f"{endpoint_path(name)}/scalings"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _SCALING_COLUMNS, as_json=as_json, empty="no changes yet")


@service.command(
    short_help="List requests and tokens by day and token.",
    epilog=example("bai service usage hello"),
)
@click.argument("name")
@page_options
@json_option
@connected
async def usage(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the requests, and the tokens that a model read and wrote, by day and by the client's
    token. Days are those of UTC.
    """
    path = f"{endpoint_path(name)}/usage"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["day"] = item["day"][:10]
            item["token"] = TOKEN_TEXTS.get(item["token"], item["token"])
    output.print_page(page, _USAGE_COLUMNS, as_json=as_json, empty="no requests yet")


@service.command(short_help="Delete an endpoint.", epilog=example("bai service rm hello"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Stop an endpoint and its running requests; it is deleted when its replicas have ended."""
    made = await connection.client.delete(endpoint_path(name))
    output.print_done(f"endpoint {name} is being stopped", made, as_json=as_json)


@service.command(epilog=example("bai service variants"))
@page_options
@json_option
@connected
async def variants(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the runtime variants; untested variants are marked."""
    page = await connection.client.get("/runtime-variants", **page_query(sort, limit, offset))
    output.print_page(page, _VARIANT_COLUMNS, as_json=as_json, empty="no variants")
