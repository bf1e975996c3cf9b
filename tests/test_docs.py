"""Commands, options, routes, error codes, traits and variables match the documentation."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from cli_reference import cli_reference
from rest_reference import rest_reference
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
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts),
]
SOURCES = (
    "bai_auth", "bai_labext", "bai_services", "bai_spawner", "benchmarks", "images", "tests",
)  # fmt: skip
ADMINISTRATOR_GUIDE = [f"admin-guide/{page.name}" for page in (DOCS / "admin-guide").glob("*.md")]
VARIABLE = re.compile(r"\bBAI_[A-Z][A-Z_]*[A-Z]\b")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


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
CLI_REFERENCE = cli_reference()
EXAMPLE = re.compile(r"^ {4,}(?:bai|\.venv/bin/bai) (.*)$|`bai ([^`]*)`", re.MULTILINE)
ROUTE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE|HEAD) (?:/services/bai/api/v1)?(/[^`\s?]*)")


def examples() -> Iterator[tuple[str, list[str]]]:
    """Yield each `bai` command in the documentation as (page, words)."""
    for page in PAGES:
        for match in EXAMPLE.finditer(page.read_text(encoding="utf-8")):
            text = re.split(r"\s#|&&|[<>]", match[1] or match[2])[0]
            try:
                yield page.name, shlex.split(text.replace("\\|", "|"))
            except ValueError:
                continue  # an unpaired quotation mark, such as an apostrophe


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the first words name, and the words after the name."""
    command: click.Command = main
    while words and isinstance(command, click.Group):
        below = command.get_command(click.Context(command), words[0])
        if below is None:
            break
        command, words = below, words[1:]
    return command, words


def test_every_documented_command_exists() -> None:
    missing = []
    for page, words in examples():
        command, rest = command_of(words)
        # Skip placeholders such as `bai COMMAND --help` and `bai session create|ls`.
        is_name = bool(rest) and re.fullmatch(r"[a-z][a-z-]*", rest[0]) is not None
        if isinstance(command, click.Group) and is_name:
            missing.append(f"{page}: bai {' '.join(words)}")
    assert missing == []


def test_every_documented_option_exists() -> None:
    missing = []
    for page, words in examples():
        command, rest = command_of(words)
        if isinstance(command, click.Group):
            continue
        known = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        rest = rest[: rest.index("--")] if "--" in rest else rest
        options = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        missing += [f"{page}: {' '.join(words)}: {o}" for o in options - known - {"--help"}]
    assert missing == []


def test_examples_are_found() -> None:
    assert len(list(examples())) > 100


def test_every_route_is_in_the_reference() -> None:
    shown = re.findall(r"^### `([A-Z]+) (/\S*)`$", rest_reference(), re.MULTILINE)
    served = {
        (method.upper(), path_of(pattern))
        for pattern, handler in ROUTES
        for method in METHODS
        if hasattr(getattr(handler, method), "operation")
    }
    assert set(shown) == served
    assert len(shown) == len(served)


def shape_of(path: str) -> str:
    """Replace each variable in a path (``{key}``, ``NAME``, ``user:ID``) by ``*``."""
    return re.sub(r"\{\w+\}|(?<=/)[\w:%-]*[A-Z][\w:%-]*", "*", path.rstrip("/"))


def test_every_documented_route_exists() -> None:
    served = {
        (method.upper(), shape_of(path_of(pattern)))
        for pattern, handler in ROUTES
        for method in METHODS
        if hasattr(getattr(handler, method), "operation")
    }
    missing = [
        f"{page.name}: {method} {path}"
        for page in PAGES
        for method, path in ROUTE.findall(page.read_text(encoding="utf-8"))
        if "…" not in path and (method, shape_of(path)) not in served
    ]
    assert missing == []


def test_every_error_code_is_documented() -> None:
    rows = set(re.findall(r"^\| `([a-z-]+)` \| \d{3} \|", read("rest-api.md"), re.MULTILINE))
    assert rows == {*errors.by_code(), "internal"}


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_has_a_help_text(path: str) -> None:
    """The reference is generated from the help texts of commands and options."""
    command = COMMANDS[path]
    assert command.help
    assert f"`{path}`" in CLI_REFERENCE
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert (
                f"`{parameter.opts[0]}" in CLI_REFERENCE
                or f", {parameter.opts[0]}" in CLI_REFERENCE
            )


def classes() -> Iterator[type[Configurable]]:
    """Yield the configurable classes of this repository."""
    for package in (bai_auth, bai_spawner, bai_services.agent):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                is_class = isinstance(value, type) and issubclass(value, Configurable)
                if is_class and value.__module__ == module.name:
                    yield value


def documented_traits() -> set[tuple[str, str]]:
    """Return (class, trait) for each trait in the tables of traits.

    A row contains ``Class.trait``, or only the trait if the heading above names the class.
    """
    found = set()
    for page in (*ADMINISTRATOR_GUIDE, "traits.md"):
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
        # An inherited trait may be documented with a subclass.
        if not any(
            (other.__name__, name) in documented
            for other in OURS.values()
            if issubclass(other, cls)
        )
    ]
    assert missing == []


def test_every_documented_trait_exists() -> None:
    missing = [
        f"{owner}.{name}"
        for owner, name in documented_traits()
        if owner in OURS and name not in OURS[owner].class_traits(config=True)
    ]
    assert missing == []


def python_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        if "node_modules" in folders:
            folders.remove("node_modules")  # about 100,000 files of other projects
        yield from (Path(place, name) for name in files if name.endswith(".py"))


def test_every_environment_variable_is_documented() -> None:
    sources = [
        *(path for name in SOURCES for path in python_files(ROOT / name)),
        *(p for p in (ROOT / "scripts").iterdir() if p.is_file()),
        ROOT / "jupyterhub_config.py",
        ROOT / "Makefile",
    ]
    used = {name for path in sources for name in VARIABLE.findall(path.read_text("utf-8"))}
    pages = map(read, (*ADMINISTRATOR_GUIDE, "cli.md"))
    documented = {name for page in pages for name in VARIABLE.findall(page)}
    # `BAI_X` exists only in a test.
    assert used - documented - {"BAI_X"} == set()
    assert documented - used == set()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's titles, as the site generator creates them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")


def test_every_relative_link_has_a_target() -> None:
    """The site build checks only links inside the site; this test checks links to all files."""
    broken = []
    for page in PAGES:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_external_links_are_well_formed() -> None:
    broken = []
    for page in PAGES:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            parts = urlsplit(target)
            if "://" in target and not (parts.scheme == "https" and "." in parts.netloc):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_chapter_of_each_page_of_the_web_ui_exists() -> None:
    pages = (ROOT / "bai_services/webui/frontend/src/app/pages.tsx").read_text(encoding="utf-8")
    chapters = re.findall(r"chapter: '([\w/-]+)\.html#([\w-]+)'", pages)
    assert len(chapters) == pages.count("title: '")
    assert [
        f"{page}#{name}" for page, name in chapters if name not in anchors(DOCS / f"{page}.md")
    ] == []


def test_named_tests_exist() -> None:
    missing = []
    for page in PAGES:
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8")):
            file = ROOT / path
            if not file.exists() or f"def {name}(" not in file.read_text("utf-8"):
                missing.append(f"{page.name}: {path}::{name}")
    assert missing == []
