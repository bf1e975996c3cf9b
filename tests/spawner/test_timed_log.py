"""Log writer of the process engine: timestamps, long lines, size limit, full disk."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bai_services.core.sessions.logs import is_timed, without_times
from bai_services.engines import timed_log
from bai_services.engines.timed_log import CHUNK_BYTES, TimedLog, timestamp

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")


def log_of_chunks(path: Path, *chunks: bytes, max_bytes: int = 2**20) -> str:
    """Write output that arrives in these chunks; return the log."""
    log = TimedLog(str(path), max_bytes)
    for chunk in chunks:
        log.write(chunk)
    log.close()
    return path.read_text()


def test_each_line_begins_with_a_timestamp(tmp_path: Path) -> None:
    text = log_of_chunks(tmp_path / "log", b"one\n\ntw", b"o\nthe ", b"end")
    assert [bool(STAMP.match(line)) for line in text.splitlines()] == [True] * 4
    assert without_times(text) == "one\n\ntwo\nthe end"
    assert timestamp(1_777_636_800_000_000_042) == b"2026-05-01T12:00:00.000000042Z "


@pytest.mark.parametrize("size", [7, 1000, CHUNK_BYTES, 50_000])
def test_a_long_line_is_stored_in_chunks(tmp_path: Path, size: int) -> None:
    lines = [b"x" * length for length in (CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 7, 0)]
    printed = b"\n".join([*lines, b"y" * 2 * CHUNK_BYTES])
    chunks = [printed[n : n + size] for n in range(0, len(printed), size)]
    assert without_times(log_of_chunks(tmp_path / "log", *chunks)) == printed.decode()


def test_the_older_half_is_dropped_at_the_maximum_size(tmp_path: Path) -> None:
    path, max_bytes = tmp_path / "log", 64 * 1024
    log = TimedLog(str(path), max_bytes)
    sizes = []
    for number in range(20_000):
        log.write(b"line %d\n" % number)
        sizes.append(path.stat().st_size)
    log.close()
    assert max_bytes // 2 < max(sizes) <= max_bytes and min(sizes[5000:]) > max_bytes // 3
    text = path.read_text()
    assert is_timed(text) and STAMP.match(text)
    numbers = [int(line.split()[1]) for line in without_times(text).splitlines()]
    assert numbers == list(range(numbers[0], 20_000))
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_full_disk_does_not_block_output() -> None:
    log = TimedLog("/dev/full", 2**20)
    log.write(b"one\ntwo\n")
    log.close()


def test_the_program_appends_and_exits_at_the_end_of_its_input(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for printed in (b"first\n", b"second\n", b""):
        words = [sys.executable, "-I", "-S", timed_log.__file__, str(path), "65536"]
        subprocess.run(words, input=printed, env={}, check=True, timeout=60)
    assert without_times(path.read_text()) == "first\nsecond\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_unwritable_log_does_not_block_output(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", timed_log.__file__, str(tmp_path / "no" / "log"), "65536"]
    subprocess.run(words, input=b"x" * 2**20, env={}, check=True, timeout=60)
