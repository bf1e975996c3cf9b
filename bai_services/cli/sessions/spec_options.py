"""Options of `bai session create` for the fields of a session request."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, TypeVar

import click

from bai_services.core.cluster.image_labels import HIGHEST_PORT, LOWEST_PORT
from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import parse_amount
from bai_services.core.scheduling.placement_options import Designation, Mode
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.spec import MAX_PRIORITY, SessionSpec, traits_of

from .. import output, units
from ..command import Choice, parse_pairs

MOUNT_FORM = "FOLDER[/DIRECTORY][:PATH[:ro|rw]]"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def parse_amounts(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Return the amounts of ``-r`` by slot; raise an error for an invalid amount, before any
    request is sent.
    """
    amounts = parse_pairs(texts, "-r", "-r cpu=1")
    for slot, text in amounts.items():
        parse_amount(slot, text)
    return amounts


def parse_minimum(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Return the amounts of ``--minimum`` by slot."""
    amounts = parse_pairs(texts, "--minimum", "--minimum cpu=1")
    for slot, text in amounts.items():
        parse_amount(slot, text)
    return amounts


def parse_memory(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> str | None:
    if text is not None:
        parse_amount("mem", text)
    return text


def parse_environ(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    return parse_pairs(texts, "-e", "-e SEED=1")


def secrets_from_environ(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> dict[str, str]:
    """Return the variables named by ``--secret-env`` with their values from the environment."""
    if missing := [name for name in names if name not in os.environ]:
        raise click.UsageError(
            f"--secret-env {missing[0]}: environment variable {missing[0]} is not set; "
            "--secret-env reads the value from the environment"
        )
    return {name: os.environ[name] for name in names}


def parse_mounts(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[dict[str, str]]:
    return [parse_mount(text) for text in texts]


def parse_mount(text: str) -> dict[str, str]:
    """Return the mount of a ``--mount`` value, ``FOLDER[/DIRECTORY][:PATH[:ro|rw]]``.

    The result contains only the fields that the value sets. Examples: for ``data`` and
    ``data::ro`` the manager chooses the path; ``data/raw/2024`` is the directory ``raw/2024`` of
    the folder ``data``.

    Raises
    ------
    InvalidRequest
        If ``text`` has another form.
    """
    source, *rest = text.split(":")
    folder, _, subpath = source.partition("/")
    path, permission = (*rest, "", "")[:2]
    if not folder or len(rest) > 2 or permission not in ("", "ro", "rw"):
        raise InvalidRequest(
            f"--mount {text!r} is not {MOUNT_FORM}; for example data:/home/work/data:ro"
        )
    mount = {"vfolder": folder, "path": path, "permission": permission, "subpath": subpath}
    return {key: value for key, value in mount.items() if value}


@dataclass(frozen=True, slots=True)
class _Syntax:
    """The differences of an option from the default: ``--FIELD-NAME VALUE`` with the type of the
    field.
    """

    flags: Sequence[str] = ()
    metavar: str | None = None
    type: click.ParamType[Any] | None = None
    callback: Callable[..., Any] | None = None
    # The flag sets the field to false.
    is_negative: bool = False


_SYNTAX: Mapping[str, _Syntax] = {
    "project": _Syntax(metavar="NAME"),
    "image": _Syntax(metavar="NAME"),
    "resources": _Syntax(("-r", "--resource"), "SLOT=AMOUNT", callback=parse_amounts),
    "minimum_resources": _Syntax(("--minimum",), "SLOT=AMOUNT", callback=parse_minimum),
    "preset": _Syntax(metavar="NAME"),
    "resource_group": _Syntax(metavar="NAME"),
    "mounts": _Syntax(("--mount",), MOUNT_FORM, callback=parse_mounts),
    "environ": _Syntax(("-e", "--env"), "KEY=VALUE", callback=parse_environ),
    "secret_environ": _Syntax(("--secret-env",), "KEY", callback=secrets_from_environ),
    "shared_memory": _Syntax(metavar="AMOUNT", callback=parse_memory),
    "type": _Syntax(type=Choice((SessionType.INTERACTIVE.value, SessionType.BATCH.value))),
    "startup_command": _Syntax(("--command",)),
    "starts_at": _Syntax(metavar="TIME"),
    "batch_timeout": _Syntax(metavar="SPAN"),
    "dependencies": _Syntax(("--depends-on",), "NAME"),
    "cluster_size": _Syntax(metavar="N", type=click.IntRange(min=1)),
    "cluster_mode": _Syntax(type=Choice([mode.value for mode in Mode])),
    "reservation": _Syntax(metavar="NAME"),
    "agent_list": _Syntax(("--agent",), "AGENT"),
    "agent_selection": _Syntax(type=Choice([one.value for one in Designation])),
    "preopen_ports": _Syntax(
        ("--preopen",), "PORT", type=click.IntRange(LOWEST_PORT, HIGHEST_PORT)
    ),
    "callback_url": _Syntax(metavar="URL"),
    "job_priority": _Syntax(metavar="N", type=click.IntRange(0, MAX_PRIORITY)),
    "is_preemptible": _Syntax(("--not-preemptible",), is_negative=True),
    "owner": _Syntax(metavar="NAME"),
}


def spec_options(command: _Command) -> _Command:
    """Add an option for each field of ``SessionSpec`` that has a help text.

    The command receives the values as keyword arguments with the names of the fields; an option
    that is not given is None, False or empty.
    """
    hints = typing.get_type_hints(SessionSpec)
    for spec_field in reversed(fields(SessionSpec)):
        help_text = traits_of(spec_field).help
        if help_text:
            option = _option(spec_field.name, hints[spec_field.name], help_text)
            command = option(command)
    return command


def _option(name: str, hint: Any, help_text: str) -> Callable[[_Command], _Command]:
    syntax = _SYNTAX.get(name, _Syntax())
    flags = syntax.flags or (f"--{name.replace('_', '-')}",)
    kind = _plain_type(hint)
    if kind is bool:
        return click.option(*flags, name, is_flag=True, help=help_text)
    is_multiple = typing.get_origin(kind) is not None
    return click.option(
        *flags,
        name,
        metavar=syntax.metavar or ("TEXT" if kind is str and syntax.type is None else None),
        multiple=is_multiple,
        type=syntax.type or (kind if kind in (int, float) else str),
        callback=syntax.callback,
        help=f"{help_text} May be repeated." if is_multiple else help_text,
    )


def _plain_type(hint: Any) -> Any:
    """Return the first type of a union that is not ``None``; return any other type unchanged."""
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def request_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request with the options that are given.

    Raises
    ------
    click.UsageError
        If a variable is given both with ``--env`` and with ``--secret-env``.
    """
    environ, secrets = values["environ"], values["secret_environ"]
    if duplicates := sorted(secrets.keys() & environ.keys()):
        raise click.UsageError(
            f"{duplicates[0]} is given with both --env and --secret-env; use only one"
        )
    given = {**values, "environ": {**environ, **secrets}, "secret_environ": sorted(secrets)}
    body = {
        name: value
        for name, value in given.items()
        # Keep a number 0 and an empty text: the user has given them.
        if value is not None and value is not False and value not in ({}, [], ())
    }
    body |= {name: False for name in body if name in _SYNTAX and _SYNTAX[name].is_negative}
    if "startup_command" in body:
        body.setdefault("type", SessionType.BATCH)
    return body


def request_text(request: Mapping[str, Any]) -> str:
    """Return a stored request as text: one line per field, with the units of resources."""
    lines = []
    for name, value in request.items():
        if name == "resources":
            text = units.slots({slot: str(amount) for slot, amount in value.items()})
        elif name == "mounts":
            text = ", ".join(_mount_text(mount) for mount in value)
        else:
            text = output.cell(value)
        lines.append(f"{name}: {text}")
    return "\n".join(lines)


def _mount_text(mount: Mapping[str, Any]) -> str:
    details = [str(mount[name]) for name in ("path", "permission") if mount.get(name)]
    return f"{mount['vfolder']} ({', '.join(details)})" if details else str(mount["vfolder"])
