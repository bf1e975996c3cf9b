"""Output of commands: JSON documents, tables, object fields, sentences, logs and notes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from bai_services.core.listing import max_exact_total

from . import table, units
from .text import json_text, printable, printable_log

# Console width for a file or a pipe; it is large, so that long lines are not truncated.
_PIPE_WIDTH = 1000
# Fields with messages of the manager. Times in these messages are shown in the local time zone;
# other texts, such as commands, are not changed.
_MESSAGES = frozenset({"last_reason", "message", "notices", "reason", "status_info", "text"})


def console() -> Console:
    """Return the console of standard output."""
    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if is_terminal else _PIPE_WIDTH,
        force_terminal=is_terminal,
        highlight=False,
        markup=False,
        emoji=False,
    )


def progress_console() -> Console:
    """Return the console of standard error, for progress displays."""
    return Console(
        file=sys.stderr,
        force_terminal=sys.stderr.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def print_page(
    page: Mapping[str, Any],
    columns: Sequence[str],
    *,
    as_json: bool,
    empty: str = "",
    texts: Mapping[str, Mapping[str, str]] | None = None,
    kept: Collection[str] = (),
    has_exact_times: bool = False,
) -> None:
    """Print one page of a list; if the whole list is empty, print the hint ``empty``.

    ``texts`` contains, for columns with codes, the text that the table shows for each code.
    ``kept`` and ``has_exact_times``: as for ``print_table``.

    Without ``as_json``, a note on standard error says how to list further entries, if any.
    """
    if as_json:
        print_json(page)
        return
    rows = [
        {
            **item,
            **{name: codes.get(item[name], item[name]) for name, codes in (texts or {}).items()},
        }
        for item in page["items"]
    ]
    print_table(
        rows,
        columns,
        empty=empty if not page.get("offset") else "",
        kept=kept,
        has_exact_times=has_exact_times,
    )
    shown, total, offset = len(page["items"]), page["total"], page.get("offset", 0)
    if offset + shown < total:
        max_total = max_exact_total(page.get("limit", shown), offset)
        of = f"more than {max_total}" if total > max_total else str(total)
        note(f"{shown} of {of}; list the next entries with --offset {offset + shown}")


def print_table(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    empty: str = "",
    kept: Collection[str] = (),
    has_exact_times: bool = False,
) -> None:
    """Print rows as a table; without rows, print ``empty``.

    ``columns`` are in order of importance: on a narrow terminal, columns that do not fit after
    the earlier ones are omitted. The columns ``kept`` have precedence over the other columns,
    wherever they are. A terminal shows times relative to now, or with ``has_exact_times`` to the
    second.
    """
    target = console()
    is_relative = target.is_terminal and not has_exact_times
    texts = [
        {column: field_text(column, row.get(column), is_relative=is_relative) for column in columns}
        for row in rows
    ]
    if not texts:
        note(empty or "nothing to list")
        return
    omitted = table.print_rows(target, columns, texts, kept)
    if omitted:
        names = ", ".join(table.title(column).lower() for column in omitted)
        note(f"not shown: {names}; use a wider terminal or --json")


def print_fields(item: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the fields of an object, one per line; empty fields are omitted."""
    if as_json:
        print_json(item)
        return
    target = console()
    shown = {name: value for name, value in item.items() if value not in (None, "", [], {})}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        for number, line in enumerate(field_text(name, value).splitlines()):
            label = Text(("" if number else name).ljust(width + 2), style="bold")
            target.print(label.append(Text(line, style="not bold")), soft_wrap=True)


def print_done(text: str, value: Any, *, as_json: bool) -> None:
    """Print the sentence ``text`` about a completed action, or ``value`` with ``--json``."""
    if as_json:
        print_json(value)
    else:
        print(printable(text))


def print_log(text: str) -> None:
    """Print the output of a program; for a terminal, pass it through ``printable_log``."""
    click.echo(printable_log(text) if sys.stdout.isatty() else text, nl=False)


def note(text: str) -> None:
    """Print a note to standard error; standard output contains only the result."""
    print(printable(text), file=sys.stderr)


def field_text(name: str, value: Any, *, is_relative: bool = False) -> str:
    """Format the field ``name`` as ``cell`` does; times within messages are local."""
    text = cell(value, is_relative=is_relative)
    return units.with_local_times(text) if name in _MESSAGES else text


def cell(value: Any, *, is_relative: bool = False) -> str:
    """Format a value of the REST API as text that is safe for a terminal.

    With ``is_relative``, times are relative to now; otherwise in the local time zone.
    """
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        separator = "\n" if any(isinstance(item, Mapping) for item in value) else ", "
        return separator.join(cell(item) for item in value) or "-"
    if isinstance(value, str) and (when := units.parse_time(value)) is not None:
        return units.relative(when) if is_relative else units.local(when)
    return printable(value)
