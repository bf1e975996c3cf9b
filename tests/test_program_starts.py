"""Programs with a slow start import their modules without garbage collections."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Runs a module as a program, and prints at its end whether collections are enabled, and whether
# they skip the imported objects.
RUN = """
import atexit, gc, runpy, sys
atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 10_000))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", ["bai_labext", "bai_services.agent", "bai_services.gateway"])
def test_garbage_collections_begin_after_the_imports(module: str) -> None:
    """Garbage collections take a sixth to a quarter of the CPU time of the start of a session, an
    agent or a gateway.
    """
    command = [sys.executable, "-c", RUN, module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True True"
