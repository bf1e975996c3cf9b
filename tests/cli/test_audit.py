"""`bai admin audit` and `bai audit`: list, export and verify the audit log."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from bai_services.db.audit_chain import AuditChainStore
from bai_services.db.tables.accounts import audit_log
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .terminal import environment, run_all_on_terminal


async def test_export_as_json_lines_and_verification(api: Api, bai: Bai) -> None:
    admin = await api.client("admin")
    for number in range(3):
        await admin.post("/domains", {"name": f"lab{number}"})
    await api.world.manager.audit_chain.run()
    async with admin.stream(
        "/audit-log", format="jsonl", action="domain.create", sort="id"
    ) as response:
        assert response.headers["Content-Type"] == "application/x-ndjson; charset=utf-8"
        assert 'filename="audit-log.jsonl"' in response.headers["Content-Disposition"]
        rows = [json.loads(line) for line in (await response.aread()).decode().splitlines()]
    assert [row["entity_id"] for row in rows][-3:] == ["lab0", "lab1", "lab2"]
    checked = await bai("admin", "audit", "verify", "--json", by="admin")
    assert (checked.code, checked.document["problem"]) == (0, None)
    known = f"{checked.document['position']}:{checked.document['hash']}"
    assert (await bai("admin", "audit", "verify", "--known", known, by="admin")).code == 0
    wrong = await bai("admin", "audit", "verify", "--known", f"{known}0", by="admin")
    assert (wrong.code, "does not have the hash" in wrong.stdout) == (1, True)
    # The retention removes the known entry (position 1) and keeps the next one as the anchor.
    entries = (await admin.get("/audit-log", sort="id", limit=2))["items"]
    first, second = (f"{entry['position']}:{entry['hash']}" for entry in entries)
    store = AuditChainStore(api.world.manager.database)
    await store.expire(api.world.clock() + timedelta(days=1), 2)
    expired = await bai("admin", "audit", "verify", "--known", first, by="admin")
    assert (expired.code, "because of its age" in expired.stderr) == (0, True)
    assert (await bai("admin", "audit", "verify", "--known", second, by="admin")).code == 0
    assert (await bai("admin", "audit", "verify", "--known", "2:x", by="admin")).code == 1
    exported = await bai(
        "admin", "audit", "export", "--format", "csv", "--action", "domain.create", by="admin"
    )
    assert "lab2" in exported.stdout.splitlines()[-1]
    listed = await bai("admin", "audit", "list", "--name", "lab1", "--json", by="admin")
    assert [e["entity_name"] for e in listed.document["items"]] == ["lab1"]
    async with api.world.manager.database.write() as tx:
        await tx.execute(
            sa.update(audit_log).where(audit_log.c.entity_id == "lab1").values(actor="eve")
        )
    damaged = await bai("admin", "audit", "verify", by="admin")
    assert damaged.code == 1
    assert f"entry {rows[-2]['id']}" in damaged.stdout
    mine = await bai("audit", "ls", "--actor", "admin", "--json", by="user")
    assert mine.document["items"] == []


async def test_empty_list_suggests_actions_similar_to_an_unknown_one(api: Api, bai: Bai) -> None:
    admin = await api.client("admin")
    await admin.post("/domains", {"name": "lab"})
    wrong = await bai("admin", "audit", "list", "--action", "domain.crate", by="admin")
    hint = "no entry matches for action 'domain.crate'. Did you mean 'domain.create'"
    assert (wrong.code, wrong.stderr.startswith(hint)) == (0, True)
    other = ("admin", "audit", "list", "--action", "domain.create", "--name", "lab2")
    assert (await bai(*other, by="admin")).stderr == "no entry matches\n"
    unlike = await bai("admin", "audit", "list", "--action", "zzzz", by="admin")
    assert unlike.stderr == "no entry matches\n"


def to_the_second(text: str) -> str:
    """A time of the REST API as commands show it in the time zone UTC."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


async def test_times_of_log_entries_have_seconds(
    api: Api, bai: Bai, agent: FakeAgent, tmp_path: Path
) -> None:
    """A terminal shows other times relative to now, such as "4 min ago"."""
    user, admin = await api.client("user"), await api.client("admin")
    session = await user.post("/sessions", {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}})
    await agent.prepare()
    await user.get("/sessions/my-lab", wait="PREPARED", timeout="60", timeout_seconds=70)
    await admin.get(f"/sessions/{session['id']}")
    mine = (await user.get("/audit-log/mine", actor="admin"))["items"]
    history = (await user.get("/sessions/my-lab/history"))["items"]
    assert mine and history
    commands = [["audit", "--actor", "admin"], ["session", "history", "my-lab"]]
    drawn = await asyncio.to_thread(
        run_all_on_terminal, commands, environment(api, tmp_path, user="user"), 100
    )
    for screen, entries in zip(drawn, (mine, history), strict=True):
        lines = screen.split("\r\n")
        for entry in entries:
            assert any(line.startswith(to_the_second(entry["at"])) for line in lines), screen
    listing = ["admin", "audit", "list", "--action", "session.read"]
    (screen,) = await asyncio.to_thread(
        run_all_on_terminal, [listing], environment(api, tmp_path, user="admin"), 100
    )
    assert to_the_second(mine[0]["at"]) in screen
    printed = await bai("session", "history", "my-lab", "--json", by="user")
    assert printed.document["items"] == history
    exported = await admin.http.get("/audit-log", params={"format": "csv", "sort": "-id"})
    rows = list(csv.DictReader(io.StringIO(exported.text.removeprefix("\ufeff"))))
    at = next(row["at"] for row in rows if row["action"] == "session.read")
    assert datetime.fromisoformat(at) == datetime.fromisoformat(mine[0]["at"])
