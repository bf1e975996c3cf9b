"""Help texts: each command has an example that parses; typos get suggestions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bai_services.cli.main import main
from bai_services.core.cluster.model import EngineName
from bai_services.core.cluster.registries import RegistryKind
from bai_services.core.notifications.catalogue import EventName
from bai_services.core.operations import announcements, maintenances
from bai_services.core.scheduling.placement_options import Policy
from bai_services.core.scheduling.queue.model import Backfill, Order
from bai_services.core.sessions.idle_checks import checkers
from bai_services.core.usage import budgets
from tests.cli.test_json import ALL

# Input files that the examples name.
FILES = (
    "a.csv", "data.csv", "drf.yaml", "hub.yaml", "images", "jobs.yaml", "nodes.csv", "notes.txt",
    "pods.csv", "policy.yaml", "train.csv", "train.pipeline", "train.yaml",
)  # fmt: skip


def examples_of(command: click.Command) -> list[str]:
    """Return the example lines at the end of a command's help text."""
    _, _, text = (command.epilog or "").partition(":\n")
    return [line.strip() for line in text.splitlines()]


def parse_command(words: Sequence[str]) -> click.Command:
    """Parse the words after ``bai`` like the command line; return the command that would run."""
    command: click.Command = main
    context = click.Context(main, info_name="bai")
    rest = list(words)
    while isinstance(command, click.Group):
        name, subcommand, rest = command.resolve_command(context, rest)
        assert name is not None and subcommand is not None, words
        command = subcommand
        context = click.Context(command, parent=context, info_name=name)
    with command.make_context(context.info_name, rest, parent=context.parent):
        return command


def bai_words(line: str) -> list[str]:
    """Return the arguments of the ``bai`` command in an example line."""
    if inner := re.search(r"\$\((bai [^)]*)\)", line):
        line = inner[1]
    words = shlex.split(line.partition(" > ")[0].partition(" >> ")[0])
    return words[1:]


@pytest.mark.parametrize("path", sorted(ALL))
def test_every_command_has_examples_that_parse(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_text("{}\n")
    own = [line for line in examples_of(ALL[path]) if line.startswith(("bai ", "eval "))]
    assert own, f"the help of bai {path} has no example"
    for line in own:
        # Compare command objects, not names: an example may use an alias of the command group.
        assert parse_command(bai_words(line)) is ALL[path], line


@pytest.mark.parametrize("path", ["session create", "admin domain update", "completion"])
def test_help_prints_the_examples_unchanged(path: str) -> None:
    done = CliRunner().invoke(main, [*path.split(), "--help"])
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert set(examples_of(ALL[path])) <= set(lines)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sesion"], "error: No such command 'sesion'. Did you mean 'session'"),
        (["Session"], "Did you mean 'session'?"),
        (["session", "creat"], "Did you mean 'create'?"),
        (["admin", "domian"], "Did you mean 'domain'"),
        (["admin", "project", "membrs"], "Did you mean 'members'?"),
        (["admin", "project", "members", "ad"], "Did you mean 'add'?"),
        (["admin", "domain", "creat"], "Did you mean 'create'"),
        (["image", "lst"], "Did you mean 'list'?"),
        (["session", "ls", "--limt", "3"], "Did you mean '--limit'?"),
        (["admin", "group", "link", "gpu", "proyect", "x"], "Did you mean 'project'?"),
        (["vfolder", "create", "x", "--usage-mode", "modl"], "Did you mean 'model'?"),
        (["session", "create", "x", "--type", "bach"], "Did you mean 'batch'?"),
        (["completion", "bsh"], "Did you mean 'bash'"),
        (["session", "create", "x", "--cluster-mode", "singel"], "Did you mean 'single-node'?"),
        (["session", "create", "x", "--cluster-mode", "mutli-node"], "Did you mean 'multi-node'"),
        (["session", "create", "x", "--agent-selection", "prefered"], "Did you mean 'preferred'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_typo_gets_a_suggestion(words: list[str], hint: str) -> None:
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, hint in done.stderr) == (2, True), done.stderr


def test_unknown_word_gets_no_suggestion() -> None:
    done = CliRunner().invoke(main, ["zzzz"])
    assert (done.exit_code, "Did you mean" in done.stderr) == (2, False)


LISTS = sorted(words for words in ALL if words.split()[-1] in ("ls", "list"))


@pytest.mark.parametrize("words", LISTS)
def test_every_list_command_has_the_names_ls_and_list(words: str) -> None:
    *group, _ = words.split()
    arguments = ["x" for p in ALL[words].params if isinstance(p, click.Argument)]
    for name in ("ls", "list"):
        assert parse_command([*group, name, *arguments]) is ALL[words]


CHOICES: dict[tuple[str, ...], type[StrEnum]] = {
    ("admin", "announcement", "create", "--audience"): announcements.Audience,
    ("admin", "announcement", "create", "--level"): announcements.Level,
    ("admin", "budget", "create", "--mode"): budgets.Mode,
    ("admin", "budget", "create", "--period"): budgets.Period,
    ("admin", "group", "create", "--engine"): EngineName,
    ("admin", "group", "create", "--scheduler"): Order,
    ("admin", "group", "try-policy", "--backfill"): Backfill,
    ("admin", "group", "try-policy", "--placement"): Policy,
    ("admin", "group", "try-policy", "--scheduler"): Order,
    ("admin", "idle-checker", "create", "--operator"): checkers.Operator,
    ("admin", "idle-checker", "create", "--type"): checkers.CheckerType,
    ("admin", "maintenance", "create", "--mode"): maintenances.Mode,
    ("admin", "maintenance", "create", "--scope"): maintenances.Scope,
    ("admin", "registry", "create", "--kind"): RegistryKind,
    ("notification", "ls", "--event"): EventName,
    ("notification", "webhook", "create", "--event"): EventName,
}


@pytest.mark.parametrize("words", CHOICES, ids=" ".join)
def test_option_with_a_fixed_set_of_values_is_a_choice(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "wrong"])
    assert result.exit_code == 2
    listed = set(re.findall(r"'([a-z-]+)'", result.output.partition("is not one of")[2]))
    assert listed == {each.value for each in CHOICES[words]}
