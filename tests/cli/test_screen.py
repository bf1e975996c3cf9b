"""Layout of screens and tables, and error messages."""

from __future__ import annotations

import io
import time

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from bai_services.cli import failures, output
from bai_services.cli.screen import Screen
from bai_services.core.errors import Unavailable


def test_second_labels_are_aligned_after_wide_characters() -> None:
    screen = Screen(Text("folder"))
    for name in ("data", "데이터"):
        screen.pair(("Name", name), ("Host", "local"))
    output = io.StringIO()
    screen.print(Console(file=output, width=80))
    _, *lines = output.getvalue().splitlines()
    assert [cell_len(line.partition("Host")[0]) for line in lines] == [40, 40]


def test_table_in_a_pipe_has_all_columns_at_any_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"name": "a", "text": "word " * 30 + "end", "at": "2030-01-31T09:00:00+00:00"},
        {"name": "long-name", "text": "short", "at": None},
    ]
    shown = set()
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    for columns in ("20", "80", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        output.print_table(rows, ("name", "at", "text"))
        shown.add(capsys.readouterr().out)
    (text,) = shown
    head, first, second = text.splitlines()
    assert head.split() == ["NAME", "AT", "TEXT"]
    assert first == "a          2030-01-31 18:00:00  " + "word " * 30 + "end"
    assert second == "long-name  -                    short"


def test_times_in_error_messages_are_local(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    error = Unavailable("read-only until 2030-01-31T09:00:00+00:00: disks")
    failures.show(error, as_json=False)
    assert capsys.readouterr().err == "error: read-only until 2030-01-31 18:00:00: disks\n"
    failures.show(error, as_json=True)
    assert "2030-01-31T09:00:00+00:00" in capsys.readouterr().err
