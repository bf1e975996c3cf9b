"""The option `--json`: the commands that have it print exactly one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bai_services.cli.main import main
from tests.cli.conftest import Bai
from tests.testbed.ports import free_port

# Commands without --json, because they connect the terminal to another program or print a script.
# `admin audit export` writes one JSON document per entry.
WITHOUT_JSON = {"ssh", "scp", "ssh-proxy", "session attach", "completion", "admin audit export"}


def commands(
    command: click.Command = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield the path (such as ``session ls``) and the command, for each command except groups."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        subcommand = command.get_command(context, name)
        assert subcommand is not None
        yield from commands(subcommand, (*path, name))


ALL = dict(commands())
WITH_JSON = {words: command for words, command in ALL.items() if words not in WITHOUT_JSON}


def takes_json(command: click.Command) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_every_command_except_listed_ones_has_the_json_option() -> None:
    assert {words for words, command in ALL.items() if not takes_json(command)} == WITHOUT_JSON


def required_words(parameter: click.Parameter, file: Path) -> list[str]:
    """Return command line words that give a required parameter a valid value."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        value = str(next(iter(kind.choices)))
    elif isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        value = "1"
    else:
        value = str(file)
    option = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
    return [*option, value]


@pytest.mark.parametrize("words", sorted(WITH_JSON))
def test_error_is_one_json_document(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("BAI_TOKEN", "some")
    # Let each request fail: nothing listens on this port.
    monkeypatch.setenv("BAI_URL", f"http://127.0.0.1:{free_port()}")
    file = tmp_path / "file.yaml"
    file.write_text("projects: {}\n")
    arguments = words.split()
    if words == "login":
        arguments += ["--user", "ann", "--password-stdin"]
    required = [p for p in WITH_JSON[words].params if p.required]
    for parameter in sorted(required, key=lambda p: isinstance(p, click.Argument)):
        arguments += required_words(parameter, file)
    done = CliRunner().invoke(main, [*arguments, "--json"], input="secret\n")
    if words == "logout":
        # logout succeeds without a request: the credential is in the environment, and none is
        # saved.
        assert json.loads(done.stdout or done.stderr)
        return
    assert done.exit_code != 0 and done.stdout == "", (arguments, done)
    assert set(json.loads(done.stderr)) == {"error", "message", "details"}, (arguments, done)


LISTS = sorted(
    words
    for words, command in WITH_JSON.items()
    if words.rpartition(" ")[2] in ("ls", "list", "whoami", "top", "shares", "invitations", "hosts")
    and not any(parameter.required for parameter in command.params)
)


async def test_list_is_one_json_document(bai: Bai) -> None:
    assert LISTS
    for words in LISTS:
        done = await bai(*words.split(), "--json")
        assert isinstance(done.document, dict), words
