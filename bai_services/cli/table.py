"""Tables that fit the terminal: omit whole columns instead of breaking words or URLs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

# A column of sentences is never wrapped to fewer than this many characters.
_MIN_SENTENCE_WIDTH = 24
_GAP = 2


def fit_columns(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    width: int,
    kept: Collection[str] = (),
) -> dict[str, int]:
    """Choose the columns that fit into ``width``; return their widths.

    Earlier columns take precedence over later ones, and the columns ``kept`` over all but the
    first, which is always included, even if it is wider than ``width``.
    """
    chosen: dict[str, int] = {}
    used = 0
    widths = {column: _widths(column, rows) for column in columns}
    reserved = sum(_GAP + widths[column][0] for column in columns[1:] if column in kept)
    for column in columns:
        min_width, natural = widths[column]
        gap = _GAP if chosen else 0
        if chosen and column in kept:
            reserved -= gap + min_width
        if chosen and used + gap + min_width + reserved > width:
            continue
        chosen[column] = max(min_width, min(natural, width - used - gap - reserved))
        used += gap + chosen[column]
    return chosen


def _widths(column: str, rows: Sequence[Mapping[str, str]]) -> tuple[int, int]:
    """Return the minimum width of a column, and its width without line breaks."""
    texts = [title(column), *(row[column] for row in rows)]
    natural = max(_longest_line(text) for text in texts)
    words = (_longest_word(text) for text in texts)
    return min(natural, max(_MIN_SENTENCE_WIDTH, *words)), natural


def title(column: str) -> str:
    """Return the heading of a column: its field name in upper case, without ``is_`` and ``_at``."""
    return column.removeprefix("is_").removesuffix("_at").replace("_", " ").upper()


def print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    kept: Collection[str] = (),
) -> list[str]:
    """Print a table; return the columns that did not fit the terminal.

    A file or a pipe gets all columns, and no line is wrapped.
    """
    if console.is_terminal:
        widths = fit_columns(columns, rows, console.width, kept)
    else:
        widths = fit_columns(columns, rows, 10**6)
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        show_edge=False,
        pad_edge=False,
        # With a box, rich itself adds one space between columns.
        padding=(0, _GAP - 1 if console.is_terminal else _GAP, 0, 0),
    )
    for column, width in widths.items():
        table.add_column(title(column), min_width=width, max_width=width)
    for row in rows:
        table.add_row(*(Text(row[column]) for column in widths))
    # The table can be wider than the terminal only because of its first column; the terminal then
    # wraps the lines.
    console.width = max(console.width, sum(widths.values()) + _GAP * len(widths))
    if console.is_terminal:
        console.print(table, crop=False)
    else:
        _print_plain(console, table)
    return [column for column in columns if column not in widths]


def _print_plain(console: Console, table: Table) -> None:
    """Print a table without blanks at the ends of its lines."""
    with console.capture() as captured:
        console.print(table, crop=False)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _longest_line(text: str) -> int:
    return max((cell_len(line) for line in text.splitlines()), default=0)


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)
