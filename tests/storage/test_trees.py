"""Walking, copying and removing trees, also during concurrent renames; holes of sparse files."""

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

from bai_services.storage.backends.local import LocalBackend
from bai_services.storage.base import CopyProgress, Location, Scope
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import Writer
from bai_services.storage.trees import copy_file, copy_tree, descriptor, measure_tree
from bai_services.system.descent import (
    OPEN_DIRECTORIES,
    Descent,
    grant_owner_access,
    remove_tree,
)

NOBODY = 65534
ROUNDS = 300


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_remove_tree_unlocks_directories_and_follows_no_link(tmp_path: Path) -> None:
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


def test_walk_changes_nothing_behind_a_link_that_replaces_a_directory(tmp_path: Path) -> None:
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
                measure_tree(top)
            remove_tree(tree)
    finally:
        is_over.set()
        swapping.join()
    assert not tree.exists()
    assert mode_of(outside) == 0o755
    assert (outside / "kept").exists()


@pytest.fixture
def swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose directory `own` becomes a link to `outside` just before it is opened."""
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    (tree / "own/in").mkdir(parents=True)
    open_really = os.open

    def swap_and_open(name: str, *arguments: int, dir_fd: int | None = None) -> int:
        if name == "own" and not (tmp_path / "away").exists():
            (tree / "own").rename(tmp_path / "away")
            (tree / "own").symlink_to(outside)
        return open_really(name, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap_and_open)
    return tree


def test_removal_follows_no_link_that_replaces_a_directory_before_it_is_opened(
    swapped: Path,
) -> None:
    remove_tree(swapped)
    assert not swapped.exists()
    assert sorted(os.listdir(swapped.parent)) == ["away", "outside"]
    assert os.listdir(swapped.parent / "outside") == ["kept"]


def test_measurement_follows_no_link_that_replaces_a_directory_before_it_is_opened(
    swapped: Path,
) -> None:
    with descriptor(os.open(swapped, os.O_RDONLY)) as top:
        assert measure_tree(top).files == 1
    assert (swapped / "own").is_symlink()


def test_access_is_not_granted_to_the_target_of_a_link(tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "link"
    outside.mkdir(mode=0o755)
    link.symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        grant_owner_access(link)
    assert mode_of(outside) == 0o755
    grant_owner_access(outside)
    assert mode_of(outside) == 0o700


DEEP = 20_000


def make_deep(top: Path, depth: int = DEEP) -> None:
    """Create nested directories and a file in the innermost one; its path may exceed PATH_MAX."""
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
    """A directory, if possible in memory: a disk takes about 1 s for 1,000 directories."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else tmp_path))
    yield made
    remove_tree(made)  # pytest cannot remove deep trees itself


@pytest.fixture
def deep(in_memory: Path) -> Path:
    made = in_memory / "deep"
    made.mkdir()
    make_deep(made)
    return made


def test_deep_tree_is_measured_copied_and_removed(deep: Path, in_memory: Path) -> None:
    copy = in_memory / "copy"
    copy.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for place in (deep, copy):
        with descriptor(os.open(place, os.O_RDONLY)) as top:
            if place is copy:
                with descriptor(os.open(deep, os.O_RDONLY)) as source:
                    copy_tree(source, top, CopyProgress())
            assert measure_tree(top).files == DEEP + 1
    remove_tree(deep)
    assert not deep.exists()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_deep_folder_is_copied_moved_and_deleted(in_memory: Path) -> None:
    host = StorageHost("local", LocalBackend(in_memory / "root"))
    await host.start()
    try:
        one, two, three = (
            Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4())) for _ in range(3)
        )
        await host.create(one)
        make_deep(Path(host.source_path(one)))
        await host.copy_folder(one, host, two, CopyProgress())
        await host.move_folder(two, three, CopyProgress())
        await host.copy(three, "d", "e", None, CopyProgress())
        await host.move(three, "e", "f", replaces=False)
        assert (await host.usage(three)).files == 2 * (DEEP + 1)
        await host.remove(three, "f", is_recursive=True)
        for location in (one, three):
            # Create what an interrupted deletion of the same folder would leave.
            left = host.staging(location).new_path().with_name(f"{location.vfolder_id}.trash")
            (left / "d").mkdir(parents=True)
            await host.delete(location)
        assert [path for path in host.backend.root.glob("*/*/*/*")] == []
    finally:
        await host.stop()


def test_interrupted_removal_is_resumed(deep: Path) -> None:
    # Simulate a removal that was interrupted half-way down, at a locked directory.
    with descriptor(os.open(deep, os.O_RDONLY)) as top, Descent(top) as at:
        for _ in range(DEEP // 2):
            at.enter("d")
        remove_tree("d", at.here)
        os.fchmod(at.here, 0)
    remove_tree(deep)
    assert not deep.exists()


def test_walk_stays_in_tree_if_directory_is_moved_out(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    levels = OPEN_DIRECTORIES + 5
    (tree / "/".join(["d"] * levels)).mkdir(parents=True)
    with descriptor(os.open(tree, os.O_RDONLY)) as top, Descent(top) as at:
        for _ in range(levels):
            at.enter("d")
        # After this rename, the parent of the third directory is outside the tree.
        os.rename(tree / "d/d/d", outside / "d")
        (tree / "d/d/d").symlink_to(outside / "d")
        while at.depth > 2:
            at.leave()
        assert os.path.samestat(os.fstat(at.here), (tree / "d/d").stat())


def test_memory_of_walk_does_not_grow_with_number_of_files(
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
            assert measure_tree(top).files == 20_000
        remove_tree(wide)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_walk_fails_if_parent_directories_were_moved(tmp_path: Path) -> None:
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


def test_copy_preserves_holes_of_1_tib_sparse_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(SPARSE_BYTES // 2)
        file.write(b"middle")
        file.truncate(SPARSE_BYTES)
    progress = CopyProgress()
    with source.open("rb") as a, target.open("wb") as b:
        copy_file(a.fileno(), b.fileno(), progress)
    facts = target.stat()
    assert (facts.st_size, progress.bytes) == (SPARSE_BYTES, SPARSE_BYTES)
    assert facts.st_blocks * 512 < 2**20
    with target.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(SPARSE_BYTES // 2)
        assert file.read(7) == b"middle\0"


def test_writer_stores_zeros_as_holes(tmp_path: Path) -> None:
    pieces = [b"a" * 10, bytes(2**21), os.urandom(100_000), bytes(70_001), b"z", bytes(2**21)]
    writer = Writer(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    for piece in pieces:
        writer.write(piece)
        assert writer.size == (tmp_path / "f").stat().st_size
    writer.sync()
    writer.close()
    assert (tmp_path / "f").read_bytes() == b"".join(pieces)
    assert (tmp_path / "f").stat().st_blocks * 512 < 2**19


def test_append_preserves_holes(tmp_path: Path) -> None:
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


def test_removal_continues_after_a_directory_that_cannot_be_listed(tmp_path: Path) -> None:
    # With three free descriptors, an entry of the tree can be opened, but not listed.
    script = """
import os, pathlib, resource
from bai_services.system.descent import remove_tree
tree = pathlib.Path("tree")
(tree / "full").mkdir(parents=True)
(tree / "full/f").touch()
for name in "abcdef":
    (tree / name).mkdir()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
opened = []
try:
    while True:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    for number in opened[-3:]:
        os.close(number)
try:
    remove_tree(tree)
except OSError as error:
    print(error.strerror)
os.closerange(opened[0], 100)
print(os.listdir(tree))
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert done.stdout == "Too many open files\n['full']\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="requires root (setuid)")
def test_unprivileged_user_removes_tree_with_locked_directories(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    script = f"""
import os, pathlib
from bai_services.system.descent import remove_tree
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
