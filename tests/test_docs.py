"""What exists is documented, and what is documented exists."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from traitlets.config import Configurable

import bai_auth
import bai_services.agent
import bai_spawner
from bai_services.api.openapi import METHODS, path_of
from bai_services.api.routes import ROUTES
from bai_services.cli.main import main
from bai_services.core import errors

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCES = (
    "bai_auth", "bai_labext", "bai_services", "bai_spawner", "benchmarks", "images", "tests",
)  # fmt: skip
VARIABLE = re.compile(r"\bBAI_[A-Z][A-Z_]*[A-Z]\b")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def quoted(text: str) -> set[str]:
    """Return what stands between backticks or as indented code."""
    return set(re.findall(r"`([^`\n]+)`", text))


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(commands(main, "bai"))
ENTITY_VERBS = ("create", "list", "show", "update", "delete")


def documented_commands() -> set[str]:
    """Return every command that cli.md names; ``a|b`` names two, upper case words are arguments."""
    found: set[str] = set()
    for text in quoted(read("cli.md").replace(r"\|", "|")):
        paths = [""]
        for word in text.split():
            if not re.fullmatch(r"[a-z][a-z|-]*", word):
                break
            paths = [f"{path} {part}".strip() for path in paths for part in word.split("|")]
        found.update(paths)
    return found


def test_every_route_is_documented() -> None:
    rows = set(re.findall(r"^\| `(/[^`]*)` \| ([A-Z]+) \|", read("rest-api.md"), re.MULTILINE))
    served = {
        (path_of(pattern), method.upper())
        for pattern, handler in ROUTES
        for method in METHODS
        if hasattr(getattr(handler, method), "operation")
    }
    assert rows == served


def test_every_error_code_is_documented() -> None:
    rows = set(re.findall(r"^\| `([a-z-]+)` \| \d{3} \|", read("rest-api.md"), re.MULTILINE))
    assert rows == {*errors.by_code(), "internal"}


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_is_documented(path: str) -> None:
    words = path.split()
    if words[1] == "admin" and len(words) == 4 and words[3] in ENTITY_VERBS:
        # One table of entities says it for all five.
        assert f"`{words[2]}`" in read("cli.md")
        return
    assert path in documented_commands()


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_option_is_documented(path: str) -> None:
    text = read("cli.md")
    missing = [
        option
        for parameter in COMMANDS[path].params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)
    ]
    assert missing == []


def test_no_documented_command_is_missing() -> None:
    every = {" ".join(words[:n]) for p in COMMANDS for words in [p.split()] for n in range(1, 9)}
    named = {path for path in documented_commands() if path.startswith("bai ")}
    assert named - every == set()


def classes() -> Iterator[type[Configurable]]:
    """Yield our configurable classes."""
    for package in (bai_auth, bai_spawner, bai_services.agent):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                is_class = isinstance(value, type) and issubclass(value, Configurable)
                if is_class and value.__module__ == module.name:
                    yield value


def documented_traits() -> set[tuple[str, str]]:
    """Return class and trait of every row; a title names the class of the rows below it."""
    found = set()
    for page in ("admin-guide.md", "quick-start.md", "traits.md"):
        title = ""
        for line in read(page).splitlines():
            if line.startswith("## "):
                title = line.strip("# `")
            names = re.match(r"\| (`[\w.]+`[^|]*)\|", line)
            owner = title if title.isidentifier() else ""
            for name in re.findall(r"`([\w.]+)`", names[1]) if names else ():
                before, dot, trait = name.rpartition(".")
                owner = before or owner
                if owner[:1].isupper():
                    found.add((owner, trait))
    return found


OURS = {cls.__name__: cls for cls in classes()}


def test_every_trait_is_documented() -> None:
    documented = documented_traits()
    missing = [
        f"{cls.__name__}.{name}"
        for cls in OURS.values()
        for name in cls.class_own_traits(config=True)
        # What a class hands down may stand with those that inherit it.
        if not any(
            (other.__name__, name) in documented
            for other in OURS.values()
            if issubclass(other, cls)
        )
    ]
    assert missing == []


def test_no_documented_trait_is_missing() -> None:
    gone = [
        f"{owner}.{name}"
        for owner, name in documented_traits()
        if owner in OURS and name not in OURS[owner].class_traits(config=True)
    ]
    assert gone == []


def test_every_environment_variable_is_documented() -> None:
    sources = [
        *(p for name in SOURCES
          for p in (ROOT / name).rglob("*.py")),
        *(p for p in (ROOT / "scripts").iterdir() if p.is_file()),
        ROOT / "jupyterhub_config.py",
        ROOT / "Makefile",
    ]  # fmt: skip
    used = {name for path in sources for name in VARIABLE.findall(path.read_text("utf-8"))}
    documented = set(VARIABLE.findall(read("admin-guide.md") + read("cli.md")))
    # Made up by a test, to be refused.
    assert used - documented - {"BAI_X"} == set()
    assert documented - used == set()


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in DOCS.glob("*.md") if f"docs/{p.name}" not in readme] == []
