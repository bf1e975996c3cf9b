"""The warm-up JIT-compiles the functions of the queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bai_services.core.scheduling.queue.jit_warmup import is_compiled, stamp_of, warm_up

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


def test_code_is_known_to_be_compiled_after_the_warm_up() -> None:
    warm_up()
    assert is_compiled()


def test_changed_source_is_not_known_to_be_compiled(tmp_path: Path) -> None:
    source = tmp_path / "placement" / "search.py"
    source.parent.mkdir()
    source.write_text("A = 1")
    before = stamp_of(tmp_path)
    assert stamp_of(tmp_path) == before
    source.write_text("A = 10")
    assert stamp_of(tmp_path) != before
