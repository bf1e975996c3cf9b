"""Sphinx extension that expands ``<!-- generated: NAME -->`` to a generated reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set

from cli_reference import cli_reference
from rest_reference import rest_reference
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

REFERENCES: Mapping[str, Callable[[], str]] = {"cli": cli_reference, "rest": rest_reference}
PAGES = ("cli-reference", "rest-reference")
_MARKER = re.compile(r"<!-- generated: (\w+) -->")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _insert)
    app.connect("env-get-outdated", _outdated_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _insert(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _MARKER.sub(lambda match: REFERENCES[match[1]](), source[0])


def _outdated_pages(
    app: Sphinx, env: BuildEnvironment, added: Set[str], changed: Set[str], removed: Set[str]
) -> Iterable[str]:
    # Always rebuild these pages: they depend on code, whose changes Sphinx does not detect.
    return [page for page in PAGES if page in env.found_docs]
