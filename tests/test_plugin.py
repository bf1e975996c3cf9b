"""Settings of the pytest plugin, and the commands with which CI runs the tests."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from tests.testbed.plugin import LONGEST_FIRST, TESTS

ROOT = TESTS.parent
# Prints the options that pytest would read, and the arguments, each on a line.
MAKE = '#!/bin/sh\necho "$PYTEST_ADDOPTS"\nprintf "%s\\n" "$@"\n'


def test_files_that_are_run_first_exist() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).exists()] == []


def test_ci_reruns_failed_tests_only_in_e2e(tmp_path: Path) -> None:
    """Outside tests/e2e, a test that fails now and then must fail CI."""
    options, *arguments = make_call_of_ci(tmp_path)
    assert "rerun" not in options
    # The commands of `make test`, each on a line.
    printed = subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    commands = [shlex.split(line) for line in printed.splitlines() if " -m pytest " in line]
    assert [("--reruns=1" in words, "tests/e2e" in words) for words in commands] == [
        (False, False),
        (True, True),
    ]


def make_call_of_ci(folder: Path) -> list[str]:
    """Run the last command of `.ci/run`; return the options of pytest and make's arguments."""
    (folder / "make").write_text(MAKE)
    (folder / "make").chmod(0o755)
    script = (ROOT / ".ci/run").read_text()
    _, _, end = script.partition("wait $!\n")
    return subprocess.run(
        ["bash", "-euc", end],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
