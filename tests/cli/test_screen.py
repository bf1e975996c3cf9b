"""Screen layout of one object."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bai_services.cli.screen import Screen


def test_second_labels_are_aligned_after_wide_characters() -> None:
    screen = Screen(Text("folder"))
    for name in ("data", "데이터"):
        screen.pair(("Name", name), ("Host", "local"))
    output = io.StringIO()
    screen.print(Console(file=output, width=80))
    _, *lines = output.getvalue().splitlines()
    assert [cell_len(line.partition("Host")[0]) for line in lines] == [40, 40]
