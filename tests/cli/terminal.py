"""Run `bai` on a pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.manager import Api

ROWS = 40
TIMEOUT_SECONDS = 120
BAI = (sys.executable, "-m", "bai_services.cli.main")


@dataclass(frozen=True, slots=True)
class TerminalRun:
    """Exit code and output of a command.

    ``drawn`` is the output to the terminal. ``stdout`` is the standard output if it is a pipe, and
    empty otherwise.
    """

    code: int
    stdout: str
    drawn: str


def environment(api: Api, folder: Path, *, user: str) -> dict[str, str]:
    """Return the environment of a command that ``user`` runs on a color terminal."""
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


# Runs several commands in one process, because a start of the interpreter takes longer than a
# command. Writes the separator U+001E after each command.
_RUN_ALL = """
import json, sys
from bai_services.cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit:
        sys.stdout.flush()
        print(chr(30), end="", flush=True)
"""


def run_all_on_terminal(
    commands: Sequence[Sequence[str]], environ: Mapping[str, str], columns: int
) -> list[str]:
    """Run all commands on one terminal; return the output of each command."""
    program = (sys.executable, "-c", _RUN_ALL, json.dumps(list(map(list, commands))))
    done = _run_program(program, environ, columns, pipes_stdout=False)
    assert done.code == 0, done.drawn
    return done.drawn.split(chr(30))[:-1]


def run_on_terminal(
    words: Sequence[str], environ: Mapping[str, str], columns: int = 100, *, pipes_stdout: bool
) -> TerminalRun:
    """Run ``bai`` on a terminal; with ``pipes_stdout``, standard output is a pipe instead."""
    return _run_program((*BAI, *words), environ, columns, pipes_stdout=pipes_stdout)


def _run_program(
    program: Sequence[str], environ: Mapping[str, str], columns: int, *, pipes_stdout: bool
) -> TerminalRun:
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", ROWS, columns, 0, 0))
    with subprocess.Popen(
        program,
        env=environ,
        stdin=terminal,
        stdout=subprocess.PIPE if pipes_stdout else terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        deadline = threading.Timer(TIMEOUT_SECONDS, process.kill)
        deadline.start()
        drawn, piped = bytearray(), bytearray()
        sources = {master: drawn}
        if process.stdout:
            sources[process.stdout.fileno()] = piped
        # Read the terminal and the pipe at the same time: a full pipe would block the command.
        while sources:
            for source in select.select(list(sources), [], [])[0]:
                try:
                    data = os.read(source, 65536)
                except OSError:  # No process still has the terminal open.
                    data = b""
                sources[source].extend(data)
                if not data:
                    del sources[source]
        os.close(master)
        process.wait()
        deadline.cancel()
    return TerminalRun(process.returncode, piped.decode(), drawn.decode())
