"""Subcommands of `bai-agent`: join, leave, check, run."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from bai_services.core.cluster.model import check_agent_id
from bai_services.core.errors import InvalidRequest
from bai_services.core.installation.settings import EngineKind

from .machine import hostname_slug
from .membership import (
    DEFAULT_DOCKER,
    DEFAULT_STATE,
    DEFAULT_UNITS,
    JoinOptions,
    Places,
    join,
    leave,
    manager_url,
    read_environment,
)

MAX_TOKEN_BYTES = 4096


def join_command(arguments: Sequence[str]) -> None:
    """Join an installation.

    Raises
    ------
    BaiError
        If this machine cannot join.
    """
    options, places = read_join(arguments)
    asyncio.run(join(options, places, _print))


def read_join(arguments: Sequence[str]) -> tuple[JoinOptions, Places]:
    """Return the options of `bai-agent join`.

    Raises
    ------
    InvalidRequest
        If an option is invalid, or the token file cannot be read.
    """
    parser = _parser("join", "Make this machine a node of a bai-hub installation.")
    parser.add_argument(
        "url", metavar="URL", help="URL of the hub, such as https://hub.example.org"
    )
    parser.add_argument("--token", default="", help="token of `bai admin agent invite`")
    parser.add_argument("--token-file", type=Path, help="file with the token, instead of --token")
    parser.add_argument("--resource-group", default="", help="refuse invitations for other groups")
    parser.add_argument("--id", default="", help="id of the agent; default: the host name")
    parser.add_argument(
        "--engine",
        default=EngineKind.DOCKER.value,
        choices=[kind.value for kind in EngineKind],
        help="engine of the resource group; default: docker",
    )
    parser.add_argument("--docker-host", default=DEFAULT_DOCKER, help="URL of the Docker engine")
    parser.add_argument(
        "--advertise", default="", help="address at which other machines reach this machine"
    )
    parser.add_argument("--ca-file", default="", help="certificate authorities for https (PEM)")
    given = parser.parse_args(arguments)
    token = given.token
    if given.token_file is not None:
        try:
            with open(given.token_file) as file:
                token = file.read(MAX_TOKEN_BYTES).strip()
        except OSError as problem:
            raise InvalidRequest(f"the token file cannot be read: {problem.strerror}") from None
    options = JoinOptions(
        url=manager_url(given.url),
        agent_id=check_agent_id(given.id or hostname_slug(platform.node())),
        engine=EngineKind(given.engine),
        docker_host=given.docker_host,
        token=token,
        resource_group=given.resource_group,
        advertise=given.advertise,
        ca_file=given.ca_file,
    )
    return options, _places(given)


def leave_command(arguments: Sequence[str]) -> None:
    """Leave the installation.

    Raises
    ------
    BaiError
        If this machine cannot leave.
    """
    parser = _parser("leave", "Undo bai-agent join: drain, leave the Swarm, remove unit and keys.")
    parser.add_argument(
        "--timeout", type=float, default=600, help="seconds to wait for sessions; default: 600"
    )
    parser.add_argument(
        "--force", action="store_true", help="leave although sessions run or the hub is down"
    )
    given = parser.parse_args(arguments)
    asyncio.run(leave(_places(given), given.timeout, forces=given.force, tell=_print))


def load_state(arguments: Sequence[str]) -> list[str]:
    """Set the variables of a machine that has joined; return the remaining arguments.

    Raises
    ------
    InvalidRequest
        If the machine has not joined.
    """
    parser = _parser("run", "Run the agent of a machine that has joined.", has_units=False)
    given, rest = parser.parse_known_args(arguments)
    os.environ.update(read_environment(given.state.absolute()))
    return rest


def _parser(name: str, text: str, *, has_units: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"bai-agent {name}", description=text)
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(DEFAULT_STATE),
        help=f"folder with credential and settings; default: {DEFAULT_STATE}",
    )
    if has_units:
        parser.add_argument(
            "--units",
            type=Path,
            default=Path(DEFAULT_UNITS),
            help=f"folder of the systemd unit; default: {DEFAULT_UNITS}",
        )
    return parser


def _places(given: argparse.Namespace) -> Places:
    return Places(given.state.absolute(), given.units.absolute())


def _print(text: str) -> None:
    print(text, flush=True)
