"""Random sequences of operations have the same effect on a folder and on a model of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bai_services.core.errors import BaiError
from bai_services.storage.backends.local import LocalBackend
from bai_services.storage.base import CopyProgress, Location, Scope
from bai_services.storage.host import StorageHost

NAMES = st.sampled_from(["a", "b", "한"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
CONTENT = st.binary(max_size=20)

Path_ = tuple[str, ...]


class Model:
    """A folder as a mapping from paths to contents. For a directory, the content is None."""

    def __init__(self) -> None:
        self.tree: dict[Path_, bytes | None] = {(): None}

    def is_directory(self, path: Path_) -> bool:
        return path in self.tree and self.tree[path] is None

    def can_create(self, path: Path_) -> bool:
        """Return whether an entry can be created at the path, because no parent is a file."""
        return all(self.tree.get(path[:n]) is None for n in range(len(path)))

    def make_parents(self, path: Path_) -> None:
        for n in range(len(path)):
            self.tree.setdefault(path[:n], None)

    def below(self, path: Path_) -> dict[Path_, bytes | None]:
        return {p: c for p, c in self.tree.items() if p[: len(path)] == path}

    def put(self, path: Path_, content: bytes) -> bool:
        if not self.can_create(path) or self.is_directory(path):
            return False
        self.make_parents(path)
        self.tree[path] = content
        return True

    def mkdir(self, path: Path_) -> bool:
        if not self.can_create(path) or path in self.tree:
            return False
        self.make_parents(path)
        self.tree[path] = None
        return True

    def remove(self, path: Path_, is_recursive: bool) -> bool:
        entries = self.below(path)
        if path not in self.tree or (len(entries) > 1 and not is_recursive):
            return False
        for known in entries:
            del self.tree[known]
        return True

    def transfer(self, source: Path_, target: Path_, keeps_source: bool) -> bool:
        entries = self.below(source)
        is_inside = target[: len(source)] == source
        if (
            source not in self.tree
            or is_inside
            or not self.can_create(target)
            or target in self.tree
        ):
            return False
        self.make_parents(target)
        if not keeps_source:
            for known in entries:
                del self.tree[known]
        for known, content in entries.items():
            self.tree[target + known[len(source) :]] = content
        return True


class FolderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = Path(tempfile.mkdtemp(prefix="bai-model-"))
        self.host = StorageHost("local", LocalBackend(self.home))
        self.folder = Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4()))
        self.model = Model()
        self.loop.run_until_complete(self.host.start())
        self.loop.run_until_complete(self.host.create(self.folder))

    def teardown(self) -> None:
        self.loop.run_until_complete(self.host.stop())
        self.loop.close()
        shutil.rmtree(self.home)

    def succeeds(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run ``work`` and return whether it succeeded; it may fail only with a ``BaiError``."""
        try:
            self.loop.run_until_complete(work)
        except BaiError:
            return False
        return True

    def check_against_model(
        self, work: Coroutine[Any, Any, Any], model: Callable[[], bool]
    ) -> None:
        before = dict(self.model.tree)
        done = model()
        assert self.succeeds(work) is done
        if not done:
            # The failed operation may have created parent directories before the error.
            self.model.tree = before
            self._add_new_directories()

    def _add_new_directories(self) -> None:
        root = Path(self.host.source_path(self.folder))
        for path in root.rglob("*"):
            if path.is_dir():
                self.model.tree.setdefault(path.relative_to(root).parts, None)

    @rule(path=PATHS, content=CONTENT)
    def put(self, path: Path_, content: bytes) -> None:
        async def send() -> None:
            writer = await self.host.writer(self.folder)
            try:
                await self.host.run(writer.write, content)
                await self.host.commit(self.folder, writer, "/".join(path), None)
            finally:
                await self.host.discard(writer)

        self.check_against_model(send(), lambda: self.model.put(path, content))

    @rule(path=PATHS)
    def mkdir(self, path: Path_) -> None:
        work = self.host.make_directory(self.folder, "/".join(path), exists_ok=False)
        self.check_against_model(work, lambda: self.model.mkdir(path))

    @rule(path=PATHS, is_recursive=st.booleans())
    def remove(self, path: Path_, is_recursive: bool) -> None:
        work = self.host.remove(self.folder, "/".join(path), is_recursive)
        self.check_against_model(work, lambda: self.model.remove(path, is_recursive))

    @rule(old=PATHS, new=PATHS)
    def move(self, old: Path_, new: Path_) -> None:
        work = self.host.move(self.folder, "/".join(old), "/".join(new), replaces=False)
        self.check_against_model(work, lambda: self.model.transfer(old, new, keeps_source=False))

    @rule(old=PATHS, new=PATHS)
    def copy(self, old: Path_, new: Path_) -> None:
        work = self.host.copy(self.folder, "/".join(old), "/".join(new), None, CopyProgress())
        self.check_against_model(work, lambda: self.model.transfer(old, new, keeps_source=True))

    @invariant()
    def folder_equals_model(self) -> None:
        root = Path(self.host.source_path(self.folder))
        tree = {
            path.relative_to(root).parts: path.read_bytes() if path.is_file() else None
            for path in root.rglob("*")
        }
        assert tree == {p: c for p, c in self.model.tree.items() if p}
        assert not list(self.home.glob("user/*/.staging/*"))


TestFolder = FolderMachine.TestCase
TestFolder.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
