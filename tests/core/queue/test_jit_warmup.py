"""The warm-up JIT-compiles the functions of the queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Prints the names of functions that are not compiled. Functions that only compiled code calls are
# not listed, because they have no signature in this process.
CODE = """
from bai_services.core.scheduling.queue import quota, selection
from bai_services.core.scheduling.queue.jit_warmup import warm_up
warm_up()
for function in (selection._select, selection._drop_after_first_full, selection._sort_first,
                 quota._exceeds_cap, quota._add_usage):
    if not function.signatures:
        print(function.__name__)
"""


def test_warm_up_compiles_the_functions_of_the_queue() -> None:
    missing = subprocess.check_output([sys.executable, "-c", CODE], cwd=ROOT, text=True)
    assert missing == ""
