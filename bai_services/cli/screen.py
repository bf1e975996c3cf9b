"""Screen layout for one object: a title, then labelled values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .text import printable

WIDTH = 80
_INDENT = 2
_GAP = 2
# Minimum column at which the second label of a line begins.
_SECOND_COLUMN = 40


@dataclass(slots=True)
class Screen:
    """A title and lines of labelled values; empty values are omitted."""

    title: Text
    lines: list[tuple[tuple[str, str], ...]] = field(default_factory=list)

    def add(self, label: str, value: object) -> None:
        """Add a line with one value."""
        self.pair((label, value))

    def pair(self, *values: tuple[str, object]) -> None:
        """Add up to two related short values: on one line if they fit, else on two."""
        shown = tuple(
            (label, printable(value)) for label, value in values if value not in ("", None)
        )
        if shown:
            self.lines.append(shown)

    def print(self, console: Console) -> None:
        """Print the title on one line, then the values, wrapped to at most 80 columns."""
        width = min(console.width, WIDTH)
        labels = _label_width(self.lines, width)
        begin = _INDENT + labels + _GAP
        _print_line(console, self.title)
        for line in self.lines:
            if len(line) == 2 and _fits(line, begin, width):
                (label, value), (label2, value2) = line
                text = _labelled(label, labels)
                text.append(value + " " * max(_SECOND_COLUMN - begin - cell_len(value), _GAP))
                text.append(f"{label2}  ", style="dim").append(value2)
                _print_line(console, text)
                continue
            for label, value in line:
                first, *rest = wrapped(value, width - begin) or [""]
                _print_line(console, _labelled(label, labels).append(first))
                for more in rest:
                    _print_line(console, Text(" " * begin + more))


def _label_width(lines: Sequence[tuple[tuple[str, str], ...]], width: int) -> int:
    """Return the width of the widest label at the start of a line."""
    first = max((cell_len(line[0][0]) for line in lines), default=0)
    # If a pair does not fit on one line, its second label also begins a line.
    seconds = [
        cell_len(line[1][0])
        for line in lines
        if len(line) == 2 and not _fits(line, _INDENT + first + _GAP, width)
    ]
    return max(first, *seconds, 0)


def _fits(line: Sequence[tuple[str, str]], begin: int, width: int) -> bool:
    (_, value), (label2, value2) = line
    if "\n" in value + value2:
        return False
    second = max(_SECOND_COLUMN, begin + cell_len(value) + _GAP)
    return second + cell_len(label2) + _GAP + cell_len(value2) <= width


def _labelled(label: str, width: int) -> Text:
    text = Text(" " * _INDENT)
    padded = label + " " * (width - cell_len(label))
    return text.append(padded, style="dim").append(" " * _GAP)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped between words at ``width`` columns.

    A word that is wider than ``width`` gets a separate line.
    """
    lines: list[str] = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split(" "):
            if line and cell_len(line) + 1 + cell_len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines


def _print_line(console: Console, text: Text) -> None:
    # Let the terminal wrap longer lines, because a URL can then be copied as a whole.
    console.print(text, soft_wrap=True)
