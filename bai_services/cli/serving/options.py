"""Options of `bai service` for settings and limits of endpoints, and the requests for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

import click

from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.placement import Mode
from bai_services.core.serving.definition import MAX_BYTES
from bai_services.core.serving.gateway_records import Protocol
from bai_services.core.serving.prompt_prefix import MAX_PREFIX_CHARACTERS
from bai_services.core.serving.rollout import Strategy
from bai_services.core.serving.settings import MAX_REPLICAS
from bai_services.core.sessions.kernel_group import MAX_KERNELS

from ..command import Choice, Connection, parse_pairs, segment, with_options

# Options by target: limits of the endpoint, settings of a revision, fields of the replicas'
# sessions, health check, and rollout.
_LIMITS = (
    "max_queue", "queue_seconds", "max_concurrent_per_replica", "request_seconds",
    "prefix_characters", "tags",
)  # fmt: skip
_SETTINGS = ("variant", "command", "port", "protocol", "model_folder", "model_path")
_REQUEST = (
    "image", "preset", "resource_group", "shared_memory", "cluster_size", "cluster_mode",
)  # fmt: skip
_HEALTH = {"health_path": "path", "start_seconds": "start_seconds"}
_ROLLOUT = (
    "strategy", "max_surge", "max_unavailable", "canary_percent", "is_automatic",
    "max_error_percent", "min_requests", "max_p99_ms", "min_seconds",
)  # fmt: skip

_NONE = "none"

_Command = TypeVar("_Command", bound=Callable[..., Any])


class OptionalRange(click.IntRange):
    """An integer in a range, or ``none``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _NONE if value == _NONE else super().convert(value, param, ctx)


_SETTINGS_OPTIONS = (
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
    click.option("--variant", metavar="NAME", help="Runtime variant; see `bai service variants`."),
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
        "--cluster-size",
        type=click.IntRange(1, MAX_KERNELS),
        help="Kernels of each replica; the server runs in the first one. Default: 1.",
    ),
    click.option(
        "--cluster-mode",
        type=Choice([each.value for each in Mode]),
        help="Whether the kernels of a replica may be on several agents.",
    ),
    click.option(
        "-e",
        "--env",
        "environ",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an environment variable.",
    ),
)
_ROLLOUT_OPTIONS = (
    click.option(
        "--strategy",
        type=Choice([each.value for each in Strategy]),
        help="How a revision replaces the previous one. Default: rolling.",
    ),
    click.option(
        "--max-surge",
        type=click.IntRange(0, MAX_REPLICAS),
        help="Rolling update: maximum number of additional replicas. Default: 1.",
    ),
    click.option(
        "--max-unavailable",
        type=click.IntRange(0, MAX_REPLICAS),
        help="Rolling update: maximum number of unavailable replicas. Default: 0.",
    ),
    click.option(
        "--canary-percent",
        type=click.IntRange(1, 99),
        help="Percentage of requests that a canary receives.",
    ),
    click.option(
        "--max-error-percent",
        type=OptionalRange(0, 100),
        help="Percentage of failed requests above which the previous revision is restored; "
        "none: no check.",
    ),
    click.option(
        "--min-requests",
        type=click.IntRange(1, 1_000_000),
        help="Minimum requests of the new revision before these checks apply. Default: 100.",
    ),
    click.option(
        "--max-p99-ms",
        type=OptionalRange(1, 3_600_000),
        help="99th percentile latency above which the previous revision is restored; none: "
        "no check.",
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
_LIMIT_OPTIONS = (
    click.option(
        "--public/--private", "is_public", default=None, help="Allow calls without a token."
    ),
    click.option("--max-queue", type=click.IntRange(0, 10_000), help="Maximum waiting requests."),
    click.option(
        "--queue-seconds", type=click.IntRange(0, 3600), help="Maximum wait of a request."
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


def settings_options(command: _Command) -> _Command:
    """Add the options of a revision's settings, including its rollout."""
    return with_options(command, *_SETTINGS_OPTIONS, *_ROLLOUT_OPTIONS)


def limit_options(command: _Command) -> _Command:
    """Add the options of an endpoint's limits and tags."""
    return with_options(command, *_LIMIT_OPTIONS)


def endpoint_path(name: str) -> str:
    return f"/endpoints/{segment(name)}"


def absolute_url(connection: Connection, url: str) -> str:
    """Return the address of an endpoint for clients; REST has only the path at the Hub's host."""
    return urljoin(connection.client.url, url)


def given_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value != ()}


def limits_request(options: Mapping[str, Any]) -> dict[str, Any]:
    given = given_fields({name: options[name] for name in ("is_public", *_LIMITS)})
    if "tags" in given:
        # A single empty tag removes all tags.
        given["tags"] = [tag for tag in given["tags"] if tag]
    return given


def revision_request(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields ``settings`` and ``definition`` of a request; empty if none is given."""
    resources = parse_pairs(options["resources"], "--resource", "-r cpu=1")
    environ = parse_pairs(options["environ"], "--env", "-e SEED=1")
    request = given_fields({name: options[name] for name in _REQUEST})
    request |= {"resources": resources} if resources else {}
    request |= {"environ": environ} if environ else {}
    parts = {
        "request": request,
        "health": given_fields({name: options[option] for option, name in _HEALTH.items()}),
        "rollout": {
            name: None if value == _NONE else value
            for name, value in given_fields({name: options[name] for name in _ROLLOUT}).items()
        },
    }
    settings = given_fields({name: options[name] for name in _SETTINGS})
    settings |= {name: part for name, part in parts.items() if part}
    body: dict[str, Any] = {"settings": settings} if settings else {}
    if options["definition"] is not None:
        body["definition"] = read_definition(options["definition"])
    if options["definition_file"] is not None:
        body["definition_file"] = options["definition_file"]
    return body


def read_definition(file: Path) -> str:
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
