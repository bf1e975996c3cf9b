"""Trees that others can still write to: nothing outside of them is touched."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bai_services.storage.trees import make_removable

NOBODY = 65534
ROUNDS = 300


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_are_opened_up_and_links_are_not_followed(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir(mode=0o755)
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/link").symlink_to(outside)
    for path in (tree / "a/b", tree / "a"):
        path.chmod(0)
    make_removable(tree)
    assert [mode_of(path) for path in (tree, tree / "a", tree / "a/b")] == [0o700] * 3
    assert mode_of(outside) == 0o755


def test_a_link_that_is_swapped_in_meanwhile_changes_nothing_outside(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir(mode=0o755)
    (tree / "own").mkdir(parents=True)
    (tree / "link").symlink_to(outside)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for old, new in (("own", "away"), ("link", "own"), ("own", "link"), ("away", "own")):
                os.rename(tree / old, tree / new)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(ROUNDS):
            make_removable(tree)
    finally:
        is_over.set()
        swapping.join()
    assert mode_of(outside) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user")
def test_an_ordinary_user_removes_what_they_locked_away(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    script = f"""
import os, pathlib
from bai_services.storage.trees import remove_tree
os.setgid({NOBODY}); os.setuid({NOBODY})
tree = pathlib.Path("tree")
(tree / "a/b").mkdir(parents=True)
(tree / "a/b/f").touch()
(tree / "a/b").chmod(0)
(tree / "a").chmod(0)
remove_tree(tree)
assert not tree.exists()
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=place, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
