"""`bai service`: create, change and watch endpoints; their revisions, replicas and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.definition import MAX_BYTES
from bai_services.core.serving.gateway_records import Protocol
from bai_services.core.serving.prompt_prefix import MAX_PREFIX_CHARACTERS
from bai_services.core.serving.rollout import Strategy
from bai_services.core.serving.settings import MAX_REPLICAS

from .. import output
from ..command import (
    Choice,
    Connection,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    parse_pairs,
    segment,
)
from .scaling import (
    given_scaling,
    measure_text,
    rule_text,
    scaling_options,
    schedule_text,
)

COLUMNS = ("name", "status", "ready", "revision", "is_public", "owner", "project", "problem")
_REVISION_COLUMNS = (
    "number", "created_at", "variant", "outcome", "requests", "errors", "p99_ms", "reason",
)  # fmt: skip
_REPLICA_COLUMNS = ("id", "revision", "phase", "session_status", "agent", "changed_at", "reason")
_CHANGE_COLUMNS = ("at", "phase", "reason")
_ACTION_COLUMNS = ("at", "actor", "action", "outcome")
_SCALING_COLUMNS = ("created_at", "former", "replicas", "reason")
_TOKEN_COLUMNS = ("name", "expires_at", "networks", "requests", "output_tokens", "last_used_at")
_VARIANT_COLUMNS = ("name", "title", "port", "health_path", "is_tested")
# Options by target: limits of the endpoint, settings of a revision, fields of the replicas'
# sessions, health check, and rollout.
_LIMITS = (
    "max_queue", "queue_seconds", "max_concurrent_per_replica", "request_seconds",
    "prefix_characters", "tags",
)  # fmt: skip
_SETTINGS = ("variant", "command", "port", "protocol", "model_folder", "model_path")
_REQUEST = ("image", "preset", "resource_group", "shared_memory")
_HEALTH = {"health_path": "path", "start_seconds": "start_seconds"}
_ROLLOUT = (
    "strategy", "max_surge", "max_unavailable", "canary_percent", "is_automatic",
    "max_error_percent", "min_requests", "max_p99_ms", "min_seconds",
)  # fmt: skip

# Polling interval of a trial's state.
POLL_SECONDS = 1.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def service() -> None:
    """Serve models: endpoints with replicas behind one address.

    A change of the settings creates a revision, which replaces the previous one step by step.
    """


def _settings_options(command: _Command) -> _Command:
    options = (
        click.option(
            "--definition",
            type=click.Path(dir_okay=False, path_type=Path),
            help="A model-definition.yaml, for the variant custom.",
        ),
        click.option(
            "--definition-file",
            metavar="PATH",
            help="Path of the definition in the model folder; its service-definition.toml sets the "
            "image and the resources.",
        ),
        click.option(
            "--variant", metavar="NAME", help="Runtime variant; see `bai service variants`."
        ),
        click.option(
            "--command",
            metavar="COMMAND",
            help="Command of the server; it must listen on port $BAI_SERVICE_PORT of 127.0.0.1.",
        ),
        click.option("--port", type=click.IntRange(2, 65535), help="Port of the server."),
        click.option(
            "--protocol",
            type=Choice([each.value for each in Protocol]),
            help="Protocol of the server; grpc needs gateways with HAProxy. Default: http.",
        ),
        click.option("--model-folder", metavar="FOLDER", help="Folder with the model; read-only."),
        click.option("--model-path", metavar="PATH", help="Path of the model in that folder."),
        click.option("--health-path", metavar="PATH", help="Path of the health check."),
        click.option(
            "--start-seconds",
            type=click.FloatRange(1, 86400),
            help="How long a new replica may take to become healthy.",
        ),
        click.option("--image", metavar="NAME", help="Image of the replicas."),
        click.option(
            "-r",
            "--resource",
            "resources",
            multiple=True,
            metavar="SLOT=AMOUNT",
            help="Amount of a resource per replica, for example cpu=1.",
        ),
        click.option("--preset", metavar="NAME", help="Resources of a preset."),
        click.option("--resource-group", metavar="NAME", help="Resource group of the replicas."),
        click.option("--shared-memory", metavar="SIZE", help="Size of /dev/shm."),
        click.option(
            "-e",
            "--env",
            "environ",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set an environment variable.",
        ),
        click.option(
            "--strategy",
            type=Choice([each.value for each in Strategy]),
            help="How a revision replaces the previous one. Default: rolling.",
        ),
        click.option(
            "--max-surge",
            type=click.IntRange(0, MAX_REPLICAS),
            help="Rolling update: additional replicas. Default: 1.",
        ),
        click.option(
            "--max-unavailable",
            type=click.IntRange(0, MAX_REPLICAS),
            help="Rolling update: missing replicas. Default: 0.",
        ),
        click.option(
            "--canary-percent",
            type=click.IntRange(1, 99),
            help="Share of the requests of a canary.",
        ),
        click.option(
            "--max-error-percent",
            type=click.IntRange(0, 100),
            help="Share of failed requests above which the previous revision is restored.",
        ),
        click.option(
            "--min-requests",
            type=click.IntRange(1, 1_000_000),
            help="Requests of the new revision that these checks need. Default: 100.",
        ),
        click.option(
            "--max-p99-ms",
            type=click.IntRange(1, 3_600_000),
            help="99th percentile latency above which the previous revision is restored.",
        ),
        click.option(
            "--min-seconds",
            type=click.IntRange(0, 7 * 86400),
            help="How long a canary is observed before it is promoted. Default: 0.",
        ),
        click.option(
            "--automatic/--manual",
            "is_automatic",
            default=None,
            help="Whether blue-green and canary rollouts wait for `bai service promote`.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _limit_options(command: _Command) -> _Command:
    options = (
        click.option(
            "--public/--private", "is_public", default=None, help="Call it without token."
        ),
        click.option("--max-queue", type=click.IntRange(0, 10_000), help="Requests that may wait."),
        click.option(
            "--queue-seconds", type=click.IntRange(0, 3600), help="Maximum wait in seconds."
        ),
        click.option(
            "--max-concurrent",
            "max_concurrent_per_replica",
            type=click.IntRange(1, 1_000_000),
            help="Concurrent requests of a replica.",
        ),
        click.option(
            "--request-seconds",
            type=click.IntRange(1, 86400),
            help="Time limit until the first byte, and between two parts of a response.",
        ),
        click.option(
            "--prefix-characters",
            type=click.IntRange(0, MAX_PREFIX_CHARACTERS),
            help="Send prompts that begin with the same characters to the same replica; 0: off.",
        ),
        click.option(
            "--tag",
            "tags",
            multiple=True,
            metavar="TEXT",
            help="Tag. All former tags are replaced; '' removes them.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


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
@_settings_options
@_limit_options
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
    body = _given({"name": name, "project": project, "replicas": replicas})
    body |= _limits(options) | given_scaling(options) | _revision(options)
    made = await connection.client.post("/endpoints", body)
    output.print_done(f"endpoint {name} created: {made['url']}", made, as_json=as_json)


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
    found = await connection.client.get(_path(name))
    if not as_json:
        del found["problem_coded"], found["scaling_reason_coded"]
        if found["scaling"] is not None:
            rule = found["scaling"]
            found |= {"scaling": rule_text(rule), "measure": measure_text(rule)}
            if rule["schedule"]:
                found["schedule"] = schedule_text(rule)
    output.print_fields(found, as_json=as_json)


@service.command(
    epilog=example(
        "bai service update hello --command 'python3 server.py'",
        "bai service update hello --min 1 --max 4 --target 8",
    )
)
@click.argument("name")
@scaling_options
@_settings_options
@_limit_options
@json_option
@connected
async def update(connection: Connection, name: str, *, as_json: bool, **options: Any) -> None:
    """Change limits or the autoscaling of an endpoint, or create a revision with other settings.

    Options of the autoscaling that are not given keep their values.
    """
    limits, revision = _limits(options) | given_scaling(options), _revision(options)
    if not revision.keys() and not limits:
        raise click.UsageError("no option is given, so there is nothing to change")
    made: dict[str, Any] = {}
    if limits:
        made = await connection.client.patch(_path(name), limits)
    if revision:
        made = await connection.client.post(f"{_path(name)}/revisions", revision)
    text = f"; revision {made['target_revision']} is being rolled out" if revision else ""
    output.print_done(f"endpoint {name} changed{text}", made, as_json=as_json)


@service.command(epilog=example("bai service scale hello 3"))
@click.argument("name")
@click.argument("replicas", type=click.IntRange(0, MAX_REPLICAS))
@json_option
@connected
async def scale(connection: Connection, name: str, replicas: int, *, as_json: bool) -> None:
    """Set a fixed number of replicas, which ends autoscaling."""
    made = await connection.client.patch(_path(name), {"replicas": replicas})
    output.print_done(f"endpoint {name} gets {replicas} replicas", made, as_json=as_json)


@service.command(epilog=example("bai service rollout hello"))
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
    path = f"{_path(name)}/revisions"
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
    """Roll out an earlier revision."""
    made = await connection.client.post(f"{_path(name)}/rollback", {"revision": revision})
    output.print_done(
        f"revision {revision} of endpoint {name} is being rolled out", made, as_json=as_json
    )


@service.command(epilog=example("bai service promote hello"))
@click.argument("name")
@json_option
@connected
async def promote(connection: Connection, name: str, *, as_json: bool) -> None:
    """Continue a blue-green or canary rollout that waits for a promotion."""
    made = await connection.client.post(f"{_path(name)}/promotion", {})
    revision = made["target_revision"]
    output.print_done(f"revision {revision} of endpoint {name} promoted", made, as_json=as_json)


@service.command(epilog=example("bai service pause hello"))
@click.argument("name")
@json_option
@connected
async def pause(connection: Connection, name: str, *, as_json: bool) -> None:
    """Stop all replicas of an endpoint and refuse its requests, until it is resumed."""
    made = await connection.client.patch(_path(name), {"is_paused": True})
    output.print_done(f"endpoint {name} paused", made, as_json=as_json)


@service.command(epilog=example("bai service resume hello"))
@click.argument("name")
@json_option
@connected
async def resume(connection: Connection, name: str, *, as_json: bool) -> None:
    """Resume a paused endpoint."""
    made = await connection.client.patch(_path(name), {"is_paused": False})
    output.print_done(f"endpoint {name} resumed", made, as_json=as_json)


@service.command(epilog=example("bai service replicas hello"))
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
    path = f"{_path(name)}/replicas"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _REPLICA_COLUMNS, as_json=as_json, empty="no replicas")


@service.command(epilog=example("bai service history hello 6f1b2c3d-0000-4000-8000-000000000000"))
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
    """List the phases of a replica, the last one first; REPLICA is an id."""
    path = f"{_path(name)}/replicas/{segment(replica)}/history"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _CHANGE_COLUMNS, as_json=as_json, empty="no changes yet")


@service.command(epilog=example("bai service log hello"))
@click.argument("name")
@page_options
@json_option
@connected
async def log(
    connection: Connection, name: str, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the actions on an endpoint, and who took them."""
    path = f"{_path(name)}/audit-log"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _ACTION_COLUMNS, as_json=as_json, empty="no actions")


@service.command(epilog=example("bai service scalings hello"))
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
    path = f"{_path(name)}/scalings"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _SCALING_COLUMNS, as_json=as_json, empty="no changes yet")


@service.command(epilog=example("bai service rm hello"))
@click.argument("name")
@json_option
@connected
async def rm(connection: Connection, name: str, *, as_json: bool) -> None:
    """Stop an endpoint and its running requests; it is deleted when its replicas have ended."""
    made = await connection.client.delete(_path(name))
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


@service.command(epilog=example("bai service check model-definition.yaml"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
@connected
async def check(connection: Connection, file: Path, *, as_json: bool) -> None:
    """Check a model definition; an error names the line."""
    body = {"definition": _read(file)}
    found = await connection.client.post("/model-definitions/check", body)
    output.print_fields(found, as_json=as_json)


@service.command(
    "try",
    epilog=example(
        "bai service try --variant cmd --command 'python3 server.py' -r cpu=1 -r mem=1g",
        "bai service try --model-folder mine --definition-file model-definition.yaml",
    ),
)
@click.option("--project", metavar="NAME", help="Project that is charged.")
@_settings_options
@json_option
@connected
async def try_(
    connection: Connection, *, project: str | None, as_json: bool, **options: Any
) -> None:
    """Start one replica that no client can call, and explain why it does not become healthy.

    The replica ends after its first successful health check, or after --start-seconds.
    """
    body = _given({"project": project}) | _revision(options)
    trial = await connection.client.post("/endpoint-trials", body)
    path = f"/endpoint-trials/{trial['id']}"
    shown = ""
    try:
        while trial["ended_at"] is None:
            if trial["state"] != shown and not as_json:
                shown = trial["state"]
                output.note(shown)
            await asyncio.sleep(POLL_SECONDS)
            trial = await connection.client.get(path)
    except BaseException:
        # Without this command, nothing waits for the result.
        await connection.client.delete(path)
        raise
    if not as_json and trial["log"]:
        output.print_log(trial["log"].rstrip() + "\n")
    output.print_done(trial["state"], trial, as_json=as_json)
    if not trial["is_healthy"]:
        click.get_current_context().exit(1)


@service.group()
def token() -> None:
    """Tokens with which clients call an endpoint."""


@token.command("create", epilog=example("bai service token create hello app --per-minute 60"))
@click.argument("name")
@click.argument("token_name", metavar="TOKEN")
@click.option("--network", "networks", multiple=True, metavar="CIDR", help="Permitted addresses.")
@click.option("--expires-at", metavar="TIME", help="Such as 2027-01-31T00:00Z. Default: never.")
@click.option(
    "--per-minute",
    "requests_per_minute",
    type=click.IntRange(1, 1_000_000),
    help="Requests per minute.",
)
@click.option("--max-concurrent", type=click.IntRange(1, 1_000_000), help="Concurrent requests.")
@json_option
@connected
async def create_token(
    connection: Connection, name: str, token_name: str, *, as_json: bool, **options: Any
) -> None:
    """Create a token, and show it; it is shown only once."""
    body = {"name": token_name, **_given(options)}
    if "networks" in body:
        body["networks"] = list(body["networks"])
    made = await connection.client.post(f"{_path(name)}/tokens", body)
    output.print_done(
        f"token {token_name} of endpoint {name}; it is not shown again: {made['token']}",
        made,
        as_json=as_json,
    )


@token.command("list", epilog=example("bai service token list hello"))
@click.argument("name")
@page_options
@json_option
@connected
async def list_tokens(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the tokens of an endpoint with their usage."""
    path = f"{_path(name)}/tokens"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _TOKEN_COLUMNS, as_json=as_json, empty="no tokens yet")


@token.command(epilog=example("bai service token revoke hello app"))
@click.argument("name")
@click.argument("token_name", metavar="TOKEN")
@json_option
@connected
async def revoke(connection: Connection, name: str, token_name: str, *, as_json: bool) -> None:
    """Revoke a token; gateways refuse it within 5 seconds."""
    await connection.client.delete(f"{_path(name)}/tokens/{segment(token_name)}")
    output.print_done(f"token {token_name} revoked", {"name": token_name}, as_json=as_json)


def _path(name: str) -> str:
    return f"/endpoints/{segment(name)}"


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value != ()}


def _limits(options: dict[str, Any]) -> dict[str, Any]:
    given = _given({name: options[name] for name in ("is_public", *_LIMITS)})
    if "tags" in given:
        # One empty tag removes all.
        given["tags"] = [tag for tag in given["tags"] if tag]
    return given


def _revision(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields ``settings`` and ``definition`` of a request; empty if none is given."""
    resources = parse_pairs(options["resources"], "--resource", "-r cpu=1")
    environ = parse_pairs(options["environ"], "--env", "-e SEED=1")
    request = _given({name: options[name] for name in _REQUEST})
    request |= {"resources": resources} if resources else {}
    request |= {"environ": environ} if environ else {}
    parts = {
        "request": request,
        "health": _given({name: options[option] for option, name in _HEALTH.items()}),
        "rollout": _given({name: options[name] for name in _ROLLOUT}),
    }
    settings = _given({name: options[name] for name in _SETTINGS})
    settings |= {name: part for name, part in parts.items() if part}
    body: dict[str, Any] = {"settings": settings} if settings else {}
    if options["definition"] is not None:
        body["definition"] = _read(options["definition"])
    if options["definition_file"] is not None:
        body["definition_file"] = options["definition_file"]
    return body


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InvalidRequest(f"{file} has more than {MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{file} is not UTF-8 text") from None
