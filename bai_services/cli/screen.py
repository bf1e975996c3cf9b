"""A screen about one thing: a title, then labelled values grouped by meaning."""

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
# Where the second value of a line begins.
_SECOND = 40


@dataclass(slots=True)
class Screen:
    """A title and lines of labelled values; empty values leave no line behind."""

    title: Text
    lines: list[tuple[tuple[str, str], ...]] = field(default_factory=list)

    def add(self, label: str, value: object) -> None:
        """Add a line with one value."""
        self.pair((label, value))

    def pair(self, *values: tuple[str, object]) -> None:
        """Add up to two short values that belong together, on one line if they fit."""
        shown = tuple(
            (label, printable(value)) for label, value in values if value not in ("", None)
        )
        if shown:
            self.lines.append(shown)

    def print(self, console: Console) -> None:
        """Print it, at most 80 columns wide; a word that is longer is never broken."""
        width = min(console.width, WIDTH)
        labels = _label_width(self.lines, width)
        begin = _INDENT + labels + _GAP
        _print_line(console, self.title)
        for line in self.lines:
            if len(line) == 2 and _fits(line, begin, width):
                (label, value), (label2, value2) = line
                text = _labelled(label, labels)
                text.append(value.ljust(max(0, _SECOND - begin - _GAP)) + " " * _GAP)
                text.append(f"{label2}  ", style="dim").append(value2)
                _print_line(console, text)
                continue
            for label, value in line:
                first, *rest = wrapped(value, width - begin) or [""]
                _print_line(console, _labelled(label, labels).append(first))
                for more in rest:
                    _print_line(console, Text(" " * begin + more))


def _label_width(lines: Sequence[tuple[tuple[str, str], ...]], width: int) -> int:
    """Return the width of the labels that begin a line."""
    first = max((cell_len(line[0][0]) for line in lines), default=0)
    # The second label of a pair begins a line of its own if the pair does not fit.
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
    second = max(_SECOND, begin + cell_len(value) + _GAP)
    return second + cell_len(label2) + _GAP + cell_len(value2) <= width


def _labelled(label: str, width: int) -> Text:
    text = Text(" " * _INDENT)
    return text.append(label.ljust(width), style="dim").append(" " * _GAP)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped between words alone."""
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
    # The terminal itself wraps what is longer, so that a URL can still be copied whole.
    console.print(text, soft_wrap=True)
