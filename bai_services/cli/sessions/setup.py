"""`bai env`, `bai dotfile`, `bai bootstrap`: the setup of your sessions or of a project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.sessions.setup import DEFAULT_SCRIPT_SECONDS, MAX_SCRIPT_SECONDS

from .. import output
from ..command import Connection, command_group, connected, example, json_option, segment

project_option = click.option(
    "-p", "--project", metavar="PROJECT", help="Use the setup of this project instead of your own."
)


def _path(project: str | None, kind: str, name: str = "") -> str:
    owner = "/me" if project is None else f"/projects/{segment(project)}"
    return f"{owner}/{kind}/{segment(name)}" if name else f"{owner}/{kind}"


@command_group()
def env() -> None:
    """Manage environment variables and secrets of your sessions."""


@env.command("ls", epilog=example("bai env ls", "bai env ls -p research"))
@project_option
@json_option
@connected
async def list_variables(connection: Connection, project: str | None, *, as_json: bool) -> None:
    """List the variables; values of secrets are never shown."""
    found = await connection.client.get(_path(project, "environ"))
    if as_json:
        output.print_json(found)
        return
    rows = [
        {**one, "value": "(secret)" if one["is_secret"] else one["value"]} for one in found["items"]
    ]
    output.print_table(
        rows, ("name", "value", "changed_at"), empty="no variables; set one: bai env set NAME VALUE"
    )


@env.command("set", epilog=example("bai env set HF_HOME /home/work/cache", "bai env set -s TOKEN"))
@click.argument("name")
@click.argument("value", required=False)
@click.option(
    "-s", "--secret", "is_secret", is_flag=True, help="Store the value encrypted; never show it."
)
@project_option
@json_option
@connected
async def set_variable(
    connection: Connection,
    name: str,
    value: str | None,
    project: str | None,
    *,
    is_secret: bool,
    as_json: bool,
) -> None:
    """Set a variable. Without VALUE, read it from a prompt or standard input.

    New sessions get the variable; running sessions keep their values.
    """
    if is_secret and value is not None:
        raise InvalidRequest(
            "a command line is visible to other processes and stays in the history: omit the value "
            "of a secret, and enter it at the prompt or on standard input",
            field="value",
        )
    if value is None:
        value = _prompted(f"Value of {name}", is_hidden=is_secret)
    body = {"value": value, "is_secret": is_secret}
    variable = await connection.client.put(_path(project, "environ", name), body)
    output.print_done(f"set {name}; new sessions get it", variable, as_json=as_json)


@env.command("rm", epilog=example("bai env rm HF_HOME"))
@click.argument("name")
@project_option
@json_option
@connected
async def remove_variable(
    connection: Connection, name: str, project: str | None, *, as_json: bool
) -> None:
    """Remove a variable."""
    await connection.client.delete(_path(project, "environ", name))
    output.print_done(f"removed {name}", {"name": name}, as_json=as_json)


@command_group()
def dotfile() -> None:
    """Manage dotfiles, which are copied to the home of new sessions."""


@dotfile.command("ls", epilog=example("bai dotfile ls"))
@project_option
@json_option
@connected
async def list_dotfiles(connection: Connection, project: str | None, *, as_json: bool) -> None:
    """List the dotfiles."""
    found = await connection.client.get(_path(project, "dotfiles"))
    if as_json:
        output.print_json(found)
        return
    rows = [{**one, "size": len(one["content"].encode())} for one in found["items"]]
    output.print_table(
        rows,
        ("path", "permission", "size", "changed_at"),
        empty="no dotfiles; add one: bai dotfile set .vimrc FILE",
    )


@dotfile.command("get", epilog=example("bai dotfile get .vimrc"))
@click.argument("path")
@project_option
@json_option
@connected
async def get_dotfile(
    connection: Connection, path: str, project: str | None, *, as_json: bool
) -> None:
    """Print a dotfile."""
    found = await connection.client.get(_path(project, "dotfiles"))
    one = next((one for one in found["items"] if one["path"] == path), None)
    if one is None:
        raise NotFound(f"there is no dotfile {path!r}")
    _print_text(one["content"], one, as_json=as_json)


@dotfile.command("set", epilog=example("bai dotfile set .vimrc ~/.vimrc"))
@click.argument("path")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--permission", metavar="OCTAL", help="Permission of the file; default: 644.")
@project_option
@json_option
@connected
async def set_dotfile(
    connection: Connection,
    path: str,
    file: str,
    permission: str | None,
    project: str | None,
    *,
    as_json: bool,
) -> None:
    """Set the dotfile PATH, relative to the home, from FILE. Default: standard input (-)."""
    body: dict[str, Any] = {"content": _read(file)}
    if permission is not None:
        body["permission"] = permission
    one = await connection.client.put(_path(project, "dotfiles", path), body)
    output.print_done(f"set {path}; new sessions get it", one, as_json=as_json)


@dotfile.command("rm", epilog=example("bai dotfile rm .vimrc"))
@click.argument("path")
@project_option
@json_option
@connected
async def remove_dotfile(
    connection: Connection, path: str, project: str | None, *, as_json: bool
) -> None:
    """Delete a dotfile."""
    await connection.client.delete(_path(project, "dotfiles", path))
    output.print_done(f"deleted {path}", {"path": path}, as_json=as_json)


@command_group()
def bootstrap() -> None:
    """Manage the script that runs before a new session becomes RUNNING."""


@bootstrap.command("show", epilog=example("bai bootstrap show"))
@project_option
@json_option
@connected
async def show_bootstrap(connection: Connection, project: str | None, *, as_json: bool) -> None:
    """Print the bootstrap script."""
    found = await connection.client.get(_path(project, "bootstrap"))
    if as_json:
        output.print_json(found)
    elif found["bootstrap"] is None:
        output.note("no bootstrap script; set one: bai bootstrap set FILE")
    else:
        _print_text(found["bootstrap"]["script"], found, as_json=False)


@bootstrap.command("set", epilog=example("bai bootstrap set setup.sh --timeout 60"))
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--timeout",
    "seconds",
    type=click.IntRange(1, MAX_SCRIPT_SECONDS),
    default=DEFAULT_SCRIPT_SECONDS,
    show_default=True,
    help="Time limit in seconds; a session whose script exceeds it fails.",
)
@project_option
@json_option
@connected
async def set_bootstrap(
    connection: Connection, file: str, seconds: int, project: str | None, *, as_json: bool
) -> None:
    """Set the script from FILE. Default: standard input (-).

    bash runs it, unless it begins with #!. If it fails, the start of the session fails.
    """
    body = {"script": _read(file), "timeout_seconds": seconds}
    found = await connection.client.put(_path(project, "bootstrap"), body)
    output.print_done("set the bootstrap script; new sessions run it", found, as_json=as_json)


@bootstrap.command("rm", epilog=example("bai bootstrap rm"))
@project_option
@json_option
@connected
async def remove_bootstrap(connection: Connection, project: str | None, *, as_json: bool) -> None:
    """Delete the bootstrap script."""
    await connection.client.delete(_path(project, "bootstrap"))
    output.print_done("deleted the bootstrap script", {}, as_json=as_json)


def _prompted(label: str, *, is_hidden: bool) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(label, hide_input=is_hidden, err=True))
    return sys.stdin.read().removesuffix("\n")


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None


def _print_text(text: str, item: Any, *, as_json: bool) -> None:
    if as_json:
        output.print_json(item)
    else:
        output.print_log(text)
