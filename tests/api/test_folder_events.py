"""Event streams: only the users of a folder and administrators receive its changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bai_services.client import Client
from tests.testbed.manager import Api


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


class Stream:
    """The events of one user."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> tuple[str, str]:
        """Return kind and folder id of the next event."""
        while not (line := await asyncio.wait_for(anext(self._lines), 10)).startswith("data: {"):
            pass
        event = json.loads(line.removeprefix("data: "))
        return event["kind"], event["folder_id"]

    async def until(self, kind: str, folder: str) -> None:
        while await self.next() != (kind, folder):
            pass


@asynccontextmanager
async def events_of(client: Client) -> AsyncIterator[Stream]:
    async with client.stream("/events") as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": open"
        yield Stream(lines)


async def test_members_are_notified_of_changes_of_a_project_folder(
    api: Api,
) -> None:
    admin, member = await api.client("domain-admin"), await api.client("user")
    async with events_of(member) as events:
        folder = (await admin.post("/vfolders", {"name": "team", "project": "default"}))["id"]
        path = f"/vfolders/{folder}"
        assert await events.next() == ("folder", folder)
        await admin.patch(path, {"permission": "ro"})
        assert await events.next() == ("folder", folder)
        await admin.delete(path)
        assert await events.next() == ("folder", folder)
        await admin.post(f"{path}/restore")
        assert await events.next() == ("folder", folder)


async def test_changed_files_are_announced_to_owner_grantee_and_administrators(
    api: Api,
) -> None:
    user, guest, other = [await api.client(name) for name in ("user", "user2", "domain-admin")]
    folder = (await user.post("/vfolders", {"name": "data"}))["id"]
    await user.put(f"/vfolders/{folder}/grants/user2", {"permission": "rw"})
    (invitation,) = (await guest.get("/vfolder-invitations"))["items"]
    await guest.post(f"/vfolder-invitations/{invitation['id']}/accept")
    private = (await user.post("/vfolders", {"name": "private"}))["id"]
    async with (
        events_of(user) as own,
        events_of(guest) as theirs,
        events_of(other) as admins,
        events_of(await api.client("admin")) as superadmins,
    ):
        await user.post(f"/vfolders/{private}/directories", {"paths": ["hidden"]})
        paths = [f"d{number}" for number in range(20)]
        for path in paths:
            await user.post(f"/vfolders/{folder}/directories", {"paths": [path]})
        for stream in (own, admins, superadmins):
            await stream.until("files", folder)
        # The guest's first event is about the shared folder: the guest gets no event about the
        # private folder.
        assert await theirs.next() == ("files", folder)
        await guest.delete(f"/vfolders/{folder}/content", path="d1", recursive="true")
        await own.until("files", folder)
        await user.delete(f"/vfolders/{folder}/grants/user2")
        while (event := await theirs.next())[0] != "folder":
            # Before the event of the revoked share, the guest only gets events about files.
            assert event == ("files", folder)


async def test_move_of_a_user_is_announced_to_grantees_and_administrators(api: Api) -> None:
    admin, guest = await api.client("admin"), await api.client("user2")
    await admin.patch("/users/acme-user", {"role": "admin"})
    folder = (await (await api.client("user")).post("/vfolders", {"name": "data"}))["id"]
    await api.share_folder("user", folder, "user2")
    async with (
        events_of(guest) as theirs,
        events_of(await api.client("domain-admin")) as old_admins,
        events_of(await api.client("acme-user")) as new_admins,
    ):
        await admin.patch("/users/user", {"domain": "acme"})
        for stream in (theirs, old_admins, new_admins):
            await stream.until("folder", "")


async def test_transfer_to_another_domain_is_announced_to_administrators_of_both(api: Api) -> None:
    admin = await api.client("admin")
    await admin.post(
        "/users",
        {"username": "acme-admin", "email": "a@example.com", "domain": "acme", "role": "admin"},
    )
    await admin.patch("/users/acme-user", {"role": "admin"})
    folder = (await (await api.client("user")).post("/vfolders", {"name": "data"}))["id"]
    async with (
        events_of(await api.client("domain-admin")) as old_admins,
        events_of(await api.client("acme-user")) as new_admins,
    ):
        await admin.put(f"/vfolders/{folder}/owner", {"user": "acme-admin"})
        for stream in (old_admins, new_admins):
            await stream.until("folder", folder)
