"""Tables that fit the terminal: whole columns are left out, words and URLs are never broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

# A column of sentences wraps at its words, down to this width.
_SENTENCE_WIDTH = 24
_GAP = 2


def fitting(
    columns: Sequence[str], rows: Sequence[Mapping[str, str]], width: int
) -> dict[str, int]:
    """Return the columns that fit into ``width`` with the width of each, in their order.

    Earlier columns go first; the first one is always taken, however wide it is.
    """
    chosen: dict[str, int] = {}
    used = 0
    for column in columns:
        texts = [title(column), *(row[column] for row in rows)]
        natural = max(_longest_line(text) for text in texts)
        least = min(natural, max(_SENTENCE_WIDTH, *(_longest_word(text) for text in texts)))
        gap = _GAP if chosen else 0
        if chosen and used + gap + least > width:
            continue
        # A sentence takes what is left, at least what it needs.
        chosen[column] = max(least, min(natural, width - used - gap))
        used += gap + chosen[column]
    return chosen


def title(column: str) -> str:
    """Return the heading of a column: the name of its field without ``is_`` and ``_at``."""
    return column.removeprefix("is_").removesuffix("_at").replace("_", " ").upper()


def print_rows(
    console: Console, columns: Sequence[str], rows: Sequence[Mapping[str, str]]
) -> list[str]:
    """Print a table; return the columns that a terminal has no room for.

    Into a file or a pipe every column is printed, one line for each row.
    """
    if console.is_terminal:
        widths = fitting(columns, rows, console.width)
    else:
        widths = fitting(columns, rows, 10**6)
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        show_edge=False,
        pad_edge=False,
        # Between the columns of a box stands its own blank.
        padding=(0, _GAP - 1 if console.is_terminal else _GAP, 0, 0),
    )
    for column, width in widths.items():
        table.add_column(title(column), min_width=width, max_width=width)
    for row in rows:
        table.add_row(*(Text(row[column]) for column in widths))
    # Wider than the terminal only if the first column alone is: the terminal wraps it.
    console.width = max(console.width, sum(widths.values()) + _GAP * len(widths))
    console.print(table, crop=False)
    return [column for column in columns if column not in widths]


def _longest_line(text: str) -> int:
    return max((cell_len(line) for line in text.splitlines()), default=0)


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)
