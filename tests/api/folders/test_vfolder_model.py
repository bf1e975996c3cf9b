"""Stateful property test: folder operations of two users are compared with a model."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import BaiError
from bai_services.core.folders.vfolders import Permission
from bai_services.core.listing import ListQuery
from bai_services.db.database import Database
from bai_services.manager.manager import Manager
from tests.testbed.manager import SUPERADMIN, MovableClock, make_world, manager_on
from tests.testbed.manager import settings as manager_settings

OWNER, GUEST = "user", "user2"
USERS = st.sampled_from([OWNER, GUEST])
NAMES = st.sampled_from(["a", "b", ".c"])
LIVE, TRASH, GONE = "ready", "delete-pending", "delete-complete"


@dataclass
class ModelFolder:
    """A folder of the model; ``grants`` are the permissions of users other than the owner."""

    id: str
    owner: str
    name: str
    content: bytes = b""
    status: str = LIVE
    is_cloneable: bool = False
    grants: dict[str, Permission] = field(default_factory=dict)

    def permission_of(self, user: str) -> Permission | None:
        if self.status != LIVE:
            return None
        return Permission.WD if user == self.owner else self.grants.get(user)


@cache
def database_template() -> Path:
    """Return the path of a database with the demo data; each run copies the database."""
    home = Path(tempfile.mkdtemp(prefix="bai-demo-"))

    async def fill() -> None:
        clock = MovableClock()
        async with manager_on(f"sqlite+aiosqlite:///{home}/bai.sqlite", home, clock) as manager:
            await make_world(manager, clock)
            policies = (
                await manager.accounts.user_policies.page(SUPERADMIN, ListQuery(limit=100))
            ).items
            for policy in policies:
                unlimited = {"max_vfolder_count": 0}
                await manager.accounts.user_policies.update(SUPERADMIN, policy.name, unlimited)

    asyncio.run(fill())
    return home / "bai.sqlite"


class FoldersMachine(RuleBasedStateMachine):
    folders = Bundle("folders")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = Path(tempfile.mkdtemp(prefix="bai-folders-"))
        shutil.copy(database_template(), self.home / "bai.sqlite")
        url = f"sqlite+aiosqlite:///{self.home}/bai.sqlite"
        self.manager = Manager(manager_settings(url, self.home), Database(url), MovableClock())
        self.run(self.manager.folders.vfolders.start())
        self.known: list[ModelFolder] = []

    def teardown(self) -> None:
        self.run(self.manager.stop())
        self.loop.close()
        shutil.rmtree(self.home)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def caller(self, user: str) -> Caller:
        caller: Caller = self.run(self.manager.accounts.callers.by_username(user, "127.0.0.1"))
        return caller

    def expect_outcome(self, work: Coroutine[Any, Any, Any], expected: bool) -> Any:
        """Run an operation and return its result.

        If ``expected`` is false, the operation must fail with a ``BaiError``; the result is None.
        """
        try:
            result = self.run(work)
        except BaiError as error:
            assert not expected, error
            return None
        assert expected, "the operation succeeded unexpectedly"
        self.run(self.manager.folders.vfolders.wait_for_tasks())
        return result

    def is_free(self, user: str, name: str, ignored: ModelFolder | None = None) -> bool:
        """Return whether the name is unused among the user's live folders except ``ignored``."""
        return not any(
            known.owner == user and known.name == name and known.status == LIVE
            for known in self.known
            if known is not ignored
        )

    @rule(target=folders, user=USERS, name=NAMES, is_cloneable=st.booleans())
    def create(self, user: str, name: str, is_cloneable: bool) -> Any:
        spec = {"name": name, "cloneable": is_cloneable}
        work = self.manager.folders.vfolders.create(self.caller(user), spec)
        made = self.expect_outcome(work, self.is_free(user, name))
        if made is None:
            return multiple()
        known = ModelFolder(made.id, user, name, is_cloneable=is_cloneable)
        self.known.append(known)
        return known

    @rule(folder=folders, user=USERS, content=st.binary(max_size=8))
    def write(self, folder: ModelFolder, user: str, content: bytes) -> None:
        caller = self.caller(user)

        async def send() -> None:
            upload = await self.manager.folders.files.upload(caller, folder.id, "f", len(content))
            await upload.write(content)
            await upload.commit(caller)

        held = folder.permission_of(user)
        self.expect_outcome(send(), held is not None and held.is_writable)
        if held is not None and held.is_writable:
            folder.content = content

    @rule(
        folder=folders, user=USERS, to=USERS, permission=st.sampled_from(list(Permission)),
    )  # fmt: skip
    def share(self, folder: ModelFolder, user: str, to: str, permission: Permission) -> None:
        may = (
            folder.status == LIVE
            and user == folder.owner
            and to != folder.owner
            # A new invitee must not have a folder of the same name. A change of an existing grant
            # does not need this.
            and (to in folder.grants or self.is_free(to, folder.name))
        )
        work = self.manager.folders.grants.put(self.caller(user), folder.id, to, permission)
        grant = self.expect_outcome(work, may)
        if grant is None:
            return
        assert grant.is_pending == (to not in folder.grants)
        if grant.is_pending:
            self.run(self.manager.folders.invitations.accept(self.caller(to), grant.invitation_id))
        folder.grants[to] = permission

    @rule(folder=folders, user=USERS)
    def unshare_or_leave(self, folder: ModelFolder, user: str) -> None:
        guest = GUEST if folder.owner == OWNER else OWNER
        # Only the owner and users with a grant see the folder. In the trash, only the owner sees
        # it.
        sees = user == folder.owner or (guest in folder.grants and folder.status == LIVE)
        work = self.manager.folders.grants.delete(self.caller(user), folder.id, guest)
        expected = sees and guest in folder.grants
        try:
            self.run(work)
        except BaiError:
            assert not (expected and folder.status == LIVE)
            return
        assert guest in folder.grants
        del folder.grants[guest]

    @rule(target=folders, folder=folders, user=USERS, name=NAMES)
    def clone(self, folder: ModelFolder, user: str, name: str) -> Any:
        held = folder.permission_of(user)
        may = held is not None and folder.is_cloneable and self.is_free(user, name)
        work = self.manager.folders.vfolders.clone(self.caller(user), folder.id, {"name": name})
        made = self.expect_outcome(work, may)
        if made is None:
            return multiple()
        known = ModelFolder(made.id, user, name, folder.content)
        self.known.append(known)
        return known

    @rule(folder=folders, user=USERS, name=NAMES)
    def rename(self, folder: ModelFolder, user: str, name: str) -> None:
        may = folder.status == LIVE and user == folder.owner
        may = may and self.is_free(user, name, folder)
        work = self.manager.folders.vfolders.update(self.caller(user), folder.id, {"name": name})
        if self.expect_outcome(work, may) is not None:
            folder.name = name

    @rule(folder=folders, user=USERS)
    def trash(self, folder: ModelFolder, user: str) -> None:
        may = folder.status == LIVE and user == folder.owner
        self.expect_outcome(self.manager.folders.vfolders.trash(self.caller(user), folder.id), may)
        if may:
            folder.status = TRASH

    @rule(folder=folders, user=USERS)
    def restore(self, folder: ModelFolder, user: str) -> None:
        may = folder.status == TRASH and user == folder.owner
        may = may and self.is_free(user, folder.name)
        self.expect_outcome(
            self.manager.folders.vfolders.restore(self.caller(user), folder.id), may
        )
        if may:
            folder.status = LIVE

    @rule(folder=folders, user=USERS)
    def purge(self, folder: ModelFolder, user: str) -> None:
        may = folder.status == TRASH and user == folder.owner
        self.expect_outcome(self.manager.folders.vfolders.purge(self.caller(user), folder.id), may)
        if may:
            folder.status = GONE

    @invariant()
    def permissions_match_the_model(self) -> None:
        for known in self.known:
            row = self.run(self.manager.folders.vfolders.get(SUPERADMIN, known.id))
            assert (row.status, row.name, row.owner) == (known.status, known.name, known.owner)
            for user in (OWNER, GUEST):
                assert self.permission(user, known) == known.permission_of(user)

    @invariant()
    def files_exist_until_the_purge(self) -> None:
        kept = {known.id: known for known in self.known if known.status != GONE}
        places = {path.name: path for path in self.home.glob("vfolders/user/*/[!.]*")}
        assert places.keys() == kept.keys()
        for key, known in kept.items():
            file = places[key] / "f"
            assert (file.read_bytes() if file.exists() else b"") == known.content

    def permission(self, user: str, known: ModelFolder) -> Permission | None:
        try:
            row = self.run(self.manager.folders.vfolders.get(self.caller(user), known.id))
        except BaiError:
            return None
        return row.permission if row.status == LIVE else None


TestFolders = FoldersMachine.TestCase
TestFolders.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)
