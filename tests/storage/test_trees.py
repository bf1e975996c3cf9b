"""Trees that others can still write to: nothing outside them is touched."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bai_services.descent import OPEN_DIRECTORIES, Descent, remove_tree
from bai_services.storage.backends.local import LocalBackend
from bai_services.storage.base import Copying, Location, Scope
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import Writer
from bai_services.storage.trees import copy_file, copy_tree, count, descriptor

NOBODY = 65534
ROUNDS = 300


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_are_opened_up_and_links_are_not_followed(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/link").symlink_to(outside)
    for path in (tree / "a/b", tree / "a"):
        path.chmod(0)
    remove_tree(tree)
    assert not tree.exists()
    assert mode_of(outside) == 0o755
    assert (outside / "kept").exists()


def test_a_link_that_is_swapped_in_meanwhile_changes_nothing_outside(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for old, new in (("own", "away"), ("link", "own"), ("own", "link"), ("away", "own")):
                with contextlib.suppress(OSError):
                    os.rename(tree / old, tree / new)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(ROUNDS):
            made = Path(tempfile.mkdtemp(dir=tmp_path))
            (made / "own/in").mkdir(parents=True)
            (made / "link").symlink_to(outside)
            made.rename(tree)
            with descriptor(os.open(tree, os.O_RDONLY)) as top:
                count(top)
            remove_tree(tree)
    finally:
        is_over.set()
        swapping.join()
    assert not tree.exists()
    assert mode_of(outside) == 0o755
    assert (outside / "kept").exists()


DEEP = 20_000


def make_deep(top: Path, depth: int = DEEP) -> None:
    """Create nested directories with a file in the last, however long the path is."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory if possible: disks take a second for 1,000 directories."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else tmp_path))
    yield made
    remove_tree(made)  # pytest itself cannot remove deep trees


@pytest.fixture
def deep(in_memory: Path) -> Path:
    made = in_memory / "deep"
    made.mkdir()
    make_deep(made)
    return made


def test_deep_directories_are_counted_copied_and_removed(deep: Path, in_memory: Path) -> None:
    copy = in_memory / "copy"
    copy.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for place in (deep, copy):
        with descriptor(os.open(place, os.O_RDONLY)) as top:
            if place is copy:
                with descriptor(os.open(deep, os.O_RDONLY)) as source:
                    copy_tree(source, top, Copying())
            assert count(top).files == DEEP + 1
    remove_tree(deep)
    assert not deep.exists()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_folder_of_deep_directories_is_copied_moved_and_deleted(in_memory: Path) -> None:
    host = StorageHost("local", LocalBackend(in_memory / "root"))
    await host.start()
    try:
        one, two, three = (
            Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4())) for _ in range(3)
        )
        await host.create(one)
        make_deep(Path(host.source_path(one)))
        await host.copy_folder(one, host, two, Copying())
        await host.move_folder(two, three, Copying())
        await host.copy(three, "d", "e", None, Copying())
        await host.move(three, "e", "f", replaces=False)
        assert (await host.usage(three)).files == 2 * (DEEP + 1)
        await host.remove(three, "f", is_recursive=True)
        for location in (one, three):
            # An earlier deletion was interrupted, and its folder was created again meanwhile.
            left = host.staging(location).fresh().with_name(f"{location.vfolder_id}.trash")
            (left / "d").mkdir(parents=True)
            await host.delete(location)
        assert [path for path in host.backend.root.glob("*/*/*/*")] == []
    finally:
        await host.stop()


def test_a_removal_that_was_interrupted_is_continued(deep: Path) -> None:
    # As if the first one was interrupted: deep inside, with a locked directory on the way.
    with descriptor(os.open(deep, os.O_RDONLY)) as top, Descent(top) as at:
        for _ in range(DEEP // 2):
            at.enter("d")
        remove_tree("d", at.here)
        os.fchmod(at.here, 0)
    remove_tree(deep)
    assert not deep.exists()


def test_directories_that_are_moved_during_a_walk_lead_nowhere(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    levels = OPEN_DIRECTORIES + 5
    (tree / "/".join(["d"] * levels)).mkdir(parents=True)
    with descriptor(os.open(tree, os.O_RDONLY)) as top, Descent(top) as at:
        for _ in range(levels):
            at.enter("d")
        # ``..`` of the third directory is now outside the tree.
        os.rename(tree / "d/d/d", outside / "d")
        (tree / "d/d/d").symlink_to(outside / "d")
        while at.depth > 2:
            at.leave()
        assert os.path.samestat(os.fstat(at.here), (tree / "d/d").stat())


def test_memory_of_a_walk_does_not_grow_with_the_files_of_a_directory(
    in_memory: Path,
) -> None:
    wide = in_memory / "wide"
    wide.mkdir()
    (wide / "0").touch()
    for number in range(1, 20_000):
        os.link(wide / "0", wide / f"{number:0100}")
    tracemalloc.start()
    try:
        with descriptor(os.open(wide, os.O_RDONLY)) as top:
            assert count(top).files == 20_000
        remove_tree(wide)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_walk_whose_way_back_is_gone_says_so(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    levels = OPEN_DIRECTORIES + 5
    (tree / "/".join(["d"] * levels)).mkdir(parents=True)
    with descriptor(os.open(tree, os.O_RDONLY)) as top, Descent(top) as at:
        for _ in range(levels):
            at.enter("d")
        os.rename(tree / "d/d/d", tmp_path / "deeper")
        os.rename(tree / "d/d", tmp_path / "above")
        with pytest.raises(OSError, match="moved"):
            while at.depth:
                at.leave()
        assert at.depth == 3


SPARSE_BYTES = 2**40


def test_a_sparse_file_of_1_tib_is_copied_with_its_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(SPARSE_BYTES // 2)
        file.write(b"middle")
        file.truncate(SPARSE_BYTES)
    progress = Copying()
    with source.open("rb") as a, target.open("wb") as b:
        copy_file(a.fileno(), b.fileno(), progress)
    facts = target.stat()
    assert (facts.st_size, progress.bytes) == (SPARSE_BYTES, SPARSE_BYTES)
    assert facts.st_blocks * 512 < 2**20
    with target.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(SPARSE_BYTES // 2)
        assert file.read(7) == b"middle\0"


def test_what_is_sent_is_stored_with_holes_for_its_zeros(tmp_path: Path) -> None:
    pieces = [b"a" * 10, bytes(2**21), os.urandom(100_000), bytes(70_001), b"z", bytes(2**21)]
    writer = Writer(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    for piece in pieces:
        writer.write(piece)
        assert writer.size == (tmp_path / "f").stat().st_size
    writer.sync()
    writer.close()
    assert (tmp_path / "f").read_bytes() == b"".join(pieces)
    assert (tmp_path / "f").stat().st_blocks * 512 < 2**19


def test_a_sparse_file_is_appended_with_its_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.seek(2**20)
        file.write(b"data")
        file.truncate(2**21)
    with source.open("rb") as a, target.open("wb+") as b:
        b.write(b"first")
        b.flush()
        copy_file(a.fileno(), b.fileno())
    assert target.read_bytes() == b"first" + source.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user")
def test_an_ordinary_user_removes_what_they_locked_away(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    script = f"""
import os, pathlib
from bai_services.descent import remove_tree
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
