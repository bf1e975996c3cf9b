"""Processes that start without importing the modules again, which takes 3 s of CPU time.

They are forks of a server process that has imported the manager. All tests of a worker share it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

PRELOADED = ["tests.testbed.manager", "tests.db.world"]


def start(
    target: Callable[..., None], *arguments: Any, log: Path | None = None
) -> ForkServerProcess:
    """Start a process that calls the function; ``log`` is the file of its output."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    if log is not None:
        log.touch()
    process: ForkServerProcess = context.Process(target=_run, args=(log, target, arguments))
    process.start()
    return process


def _run(log: Path | None, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if log is not None:
        output = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
    target(*arguments)
