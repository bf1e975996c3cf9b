"""Output of `bai session create --preview`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from bai_services.core.errors import InvalidRequest

from .. import output
from .why import check_lines, explanation_lines


def print_preview(preview: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the preview of a session.

    Raises
    ------
    InvalidRequest
        If the session cannot be created and ``as_json`` is False. The message lists all problems.
    """
    if as_json:
        output.print_json(preview)
        return
    if preview["problems"]:
        raise InvalidRequest("\n".join(_problem(problem) for problem in preview["problems"]))
    for line in _lines(preview):
        click.echo(output.cell(line))


def _problem(problem: Mapping[str, Any]) -> str:
    field = problem["field"]
    return f"{field}: {problem['problem']}" if field else str(problem["problem"])


def _lines(preview: Mapping[str, Any]) -> Iterator[str]:
    session = preview["session"]
    if preview["existing_session"]:
        yield f"{session['name']} exists already (id {preview['existing_session']})"
        return
    amounts = " ".join(f"{slot}={amount}" for slot, amount in session["requested"].items())
    size = session["cluster_size"]
    resources = f"{size} kernels of {amounts}" if size > 1 else amounts
    group = session["resource_group"]
    yield f"{session['name']}: {session['image']}, {resources}, resource group {group}"
    if preview["starts_now"]:
        yield "it would start now"
        yield from (line for check in preview["checks"] for line in check_lines(check))
    else:
        yield from explanation_lines(preview)
    yield from _caps(preview["caps"])


def _caps(caps: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for number, cap in enumerate(caps):
        if number == 0:
            yield "quotas:"
        scope, slot = cap["scope_text"], cap["slot"]
        amounts = f"{cap['asked']} of {cap['left']} left (limit {cap['limit']}, used {cap['used']})"
        over = ", over the limit" if cap["is_exceeded"] else ""
        yield f"  {scope}: {slot}={amounts}{over}"
