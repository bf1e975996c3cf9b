"""The page *My environments*: a custom image is started, renamed, shared, published and deleted."""

from __future__ import annotations

import json
import secrets
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@contextmanager
def committed(hub: RunningHub, owner: str) -> Iterator[dict[str, Any]]:
    """A custom image of a user, as a commit would store it; the process engine cannot commit."""
    name = f"env-{secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        user = checked(admin.get(f"/users/{owner}"), 200)
        project = checked(admin.get("/projects/default"), 200)
        image = {"name": f"localhost/custom/{owner}/{name}:0123abcd", "labels": {}}
        made = checked(admin.post("/images", json=image), 201)
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
        row = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "changed_at": now,
            "name": name,
            "description": "",
            "image": made["name"],
            "image_id": made["id"],
            "base_image": "python",
            "architecture": made["architecture"],
            "owner_id": user["id"],
            "project_id": project["id"],
            "visibility": "private",
            "is_publish_requested": 0,
            "labels": json.dumps({}),
            "session_id": str(uuid.uuid4()),
            "kernel_id": str(uuid.uuid4()),
            "session_name": "lab",
            "agent_id": "gone",
            "status": "done",
            "percent": 100,
            "message": "",
            "size_bytes": 2**20,
            "digest": "",
        }
        insert = (
            f"INSERT INTO custom_images ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        )
        with closing(sqlite3.connect(hub.home / "bai.sqlite", timeout=30)) as database, database:
            database.execute(insert, list(row.values()))
        try:
            yield row
        finally:
            admin.delete(f"/custom-images/{row['id']}")


@pytest.mark.checklist("ENV-01", "ENV-03")
async def test_owner_starts_renames_shares_and_deletes_a_custom_image(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    with committed(hub, "user2") as made:
        name = made["name"]
        ui = await opened(Entities, "user2", f"/custom-images?name__contains={name}")
        row = ui.row(name)
        await expect(row).to_contain_text("Done")
        await expect(row).to_contain_text(made["image"])
        # Another member of the project does not see the private image.
        other = await opened(Entities, "user", "/custom-images")
        await other.filter(name)
        await other.page.locator(".ant-table-placeholder").wait_for()
        await expect(other.row(name)).to_have_count(0)

        await row.get_by_role("link", name="Start a session").click()
        await ui.page.get_by_text(made["image"]).first.wait_for()
        assert "/launch" in ui.page.url

        await ui.open(f"/custom-images?name__contains={name}")
        await ui.show(name)
        await ui.drawer.get_by_role("button", name="Edit").click()
        await ui.fill(Name=f"{name}-b")
        await ui.choose("Visible to", "Members")
        await ui.save()
        renamed = ui.row(f"{name}-b")
        await expect(renamed).to_contain_text("Members of the project")
        await ui.page.keyboard.press("Escape")
        await expect(ui.page.get_by_role("dialog")).to_have_count(0)
        await other.page.reload()
        await other.row(f"{name}-b").wait_for()

        await renamed.get_by_role("button", name="Request publication").click()
        await expect(renamed).to_contain_text("(publication requested)")
        with hub.rest("admin") as admin:
            wanted = f"/custom-images?is_publish_requested=true&name={name}-b"
            assert checked(admin.get(wanted), 200)["total"] == 1

        await ui.show(f"{name}-b")
        await ui.drawer.get_by_role("button", name="Delete").click()
        await ui.page.get_by_text("Sessions can no longer start with this image.").wait_for()
        await ui.confirm("Delete")
        await expect(ui.row(f"{name}-b")).to_have_count(0)
