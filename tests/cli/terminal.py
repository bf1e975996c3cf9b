"""The real command on a pseudo-terminal of a chosen width."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.manager import Api

ROWS = 40
BAI = (sys.executable, "-m", "bai_services.cli.main")


@dataclass(frozen=True, slots=True)
class Shown:
    """How a command ended, its standard output if that was a pipe, what the terminal received."""

    code: int
    stdout: str
    drawn: str


def environment(api: Api, folder: Path, *, user: str) -> dict[str, str]:
    """Return the environment of a command that a user runs on a colour terminal."""
    keys = api.world.keys[user]
    others = {k: v for k, v in os.environ.items() if not k.startswith("BAI_")}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        others.pop(name, None)
    return {
        **others,
        "TERM": "xterm-256color",
        "TZ": "UTC",
        "BAI_CONFIG_DIR": str(folder / "config"),
        "BAI_URL": api.url.removesuffix("/services/bai"),
        "BAI_ACCESS_KEY": keys.access_key,
        "BAI_SECRET_KEY": keys.secret_key,
    }


# Runs several commands in one process: starting the interpreter takes longer than a command.
_EACH = """
import json, sys
from bai_services.cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit:
        sys.stdout.flush()
        print(chr(30), end="", flush=True)
"""


def all_on_terminal(
    commands: Sequence[Sequence[str]], environ: Mapping[str, str], columns: int
) -> list[str]:
    """Run each command on one terminal; return what the terminal received of each."""
    program = (sys.executable, "-c", _EACH, json.dumps(list(map(list, commands))))
    shown = _run(program, environ, columns, pipes_stdout=False)
    assert shown.code == 0, shown.drawn
    return shown.drawn.split(chr(30))[:-1]


def on_terminal(
    words: Sequence[str], environ: Mapping[str, str], columns: int = 100, *, pipes_stdout: bool
) -> Shown:
    """Run ``bai`` on a terminal; with ``pipes_stdout`` its standard output is a pipe."""
    return _run((*BAI, *words), environ, columns, pipes_stdout=pipes_stdout)


def _run(
    program: Sequence[str], environ: Mapping[str, str], columns: int, *, pipes_stdout: bool
) -> Shown:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, columns, 0, 0))
    with subprocess.Popen(
        program,
        env=environ,
        stdin=theirs,
        stdout=subprocess.PIPE if pipes_stdout else theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        drawn = bytearray()
        while True:
            try:
                drawn += os.read(ours, 65536)
            except OSError:  # the last process that had the terminal open has ended
                break
        os.close(ours)
        stdout = process.stdout.read().decode() if process.stdout else ""
    return Shown(process.returncode, stdout, drawn.decode())
