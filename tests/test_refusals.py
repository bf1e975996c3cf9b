"""Refusals of images, imports and pipelines have codes, so the web UI can translate them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import bai_services
from bai_services.core import errors

ROOT = Path(bai_services.__file__).parent
# Packages whose errors the web UI shows.
PATTERNS = (
    "core/pipelines/*.py",
    "manager/pipelines/*.py",
    "db/pipelines/*.py",
    "core/imports/*.py",
    "manager/imports/imports.py",
    "db/imports/*.py",
    "core/cluster/custom_images.py",
    "core/cluster/recipes.py",
    "core/cluster/registries.py",
    "core/sessions/callbacks.py",
    "core/yaml_sections.py",
    "manager/cluster/custom_images.py",
    "manager/cluster/image*.py",
    "manager/cluster/registries.py",
    "db/cluster/custom_images.py",
    "db/cluster/image*.py",
    "db/cluster/registries.py",
)
# Errors that only agents, callers of webhooks or the log get.
NOT_ON_PAGES = {
    ("core/cluster/custom_images.py", "a work item cannot be parsed: "),
    ("manager/cluster/custom_images.py", "the commit has ended"),
    ("db/cluster/custom_images.py", "there is no such commit"),
    ("db/cluster/image_pulls.py", "there is no such pull, or it has ended"),
    ("manager/pipelines/triggers.py", "the body may have at most "),
    ("core/pipelines/triggers.py", "there is no such trigger, or the signature is not "),
}
ERRORS = {cls.__name__ for cls in vars(errors).values() if isinstance(cls, type)}


def plain_texts(path: Path) -> Iterator[str]:
    """Yield the first 50 characters of the messages without a code that a file gives to errors."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.id if isinstance(function, ast.Name) else ""
        if name not in ERRORS and "problem" not in name:
            continue
        for argument in node.args:
            first = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value[:50]
            elif isinstance(first, ast.FormattedValue):
                yield ast.unparse(first)


def test_every_refusal_that_a_page_shows_has_a_code() -> None:
    files = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]
    assert len(files) > 50
    found = {
        (path.relative_to(ROOT).as_posix(), text) for path in files for text in plain_texts(path)
    }
    assert found - NOT_ON_PAGES == set()
    assert NOT_ON_PAGES - found == set(), "no longer needed"


def test_message_and_text_of_an_error_with_and_without_a_code() -> None:
    plain = errors.Conflict("no")
    assert (plain.message, plain.coded, str(plain.text)) == ("no", None, "no")
