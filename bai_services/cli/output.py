"""What commands print: one JSON document, a table, or a list of fields."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bai_services.core.listing import most_counted

from .text import printable

# Wide enough that a table in a file or a pipe is never cut.
_PIPE_WIDTH = 1000


def console() -> Console:
    """Return the console of standard output."""
    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout, width=None if is_terminal else _PIPE_WIDTH, highlight=False, markup=False
    )


def progress_console() -> Console:
    """Return the console of standard error, where progress is shown."""
    return Console(file=sys.stderr, highlight=False, markup=False)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_page(page: Mapping[str, Any], columns: Sequence[str], *, as_json: bool) -> None:
    """Print one page of a list, and on standard error whether there is more."""
    if as_json:
        print_json(page)
        return
    print_table(page["items"], columns)
    shown, total, offset = len(page["items"]), page["total"], page.get("offset", 0)
    if offset + shown < total:
        most = most_counted(page.get("limit", shown), offset)
        of = f"more than {most}" if total > most else str(total)
        print(f"{shown} of {of}; more with --offset {offset + shown}", file=sys.stderr)


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row.get(column))) for column in columns))
    console().print(table)


def print_thing(thing: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one thing, a line per field."""
    if as_json:
        print_json(thing)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in thing.items():
        table.add_row(Text(name, style="bold"), Text(cell(value)))
    console().print(table)


def print_done(text: str, value: Any, *, as_json: bool) -> None:
    """Say that something was done; ``value`` is the document for ``--json``."""
    if as_json:
        print_json(value)
    else:
        print(printable(text))


def note(text: str) -> None:
    """Say something beside the result, on standard error."""
    print(printable(text), file=sys.stderr)


def cell(value: Any) -> str:
    """Return the text of a value of the REST API, in one piece and without control characters."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        separator = "\n" if any(isinstance(item, Mapping) for item in value) else ", "
        return separator.join(cell(item) for item in value) or "-"
    return printable(_local_time(value) if isinstance(value, str) else value)


def _local_time(text: str) -> str:
    """Return a time of the REST API in the reader's zone; any other text as it is."""
    if len(text) < 20 or text[10:11] != "T":
        return text
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text
