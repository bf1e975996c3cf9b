"""`bai admin diagnostics` and `GET /system`."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import sqlalchemy as sa

from bai_services.db.tables.base import metadata
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import (
    AGENT_TOKEN,
    GATEWAY_TOKEN,
    HUB_TOKEN,
    KEY,
    METRICS_TOKEN,
    Api,
)

from .conftest import Bai

# Columns with encrypted secrets, and with hashes of passwords and tokens.
SECRET_COLUMN = re.compile(r"(^|_)(encrypted|password_hash|token_hash|key_hash)$")
# Plain texts of secrets that are stored in the database.
PLAIN = (
    "webhook-secret",
    "registry-secret",
    "environ-secret",
    "session-secret",
    "user-pass-secret-1",
)


async def store_secrets(api: Api) -> None:
    """Store the secrets ``PLAIN`` and others in the database."""
    admin, user = await api.client("admin"), await api.client("user")
    spec = {"url": "https://name.invalid/webhook-secret", "scope": "all"}
    await admin.post("/webhooks", spec)
    registry = {"name": "team", "url": "https://registry.invalid", "patterns": ["team/*:*"]}
    account = {"username": "robot", "password": "registry-secret"}
    await admin.post("/image-registries", {**registry, **account})
    await user.put("/me/environ/TOKEN", {"value": "environ-secret", "is_secret": True})
    await user.post(
        "/sessions",
        {"name": "my-lab", "environ": {"OWN": "session-secret"}, "secret_environ": ["OWN"]},
    )
    await admin.patch("/users/user2", {"password": "user-pass-secret-1"})


async def stored_secrets(api: Api) -> set[str]:
    """Return the values of all columns of the database with encrypted secrets or hashes."""
    found = set()
    async with api.world.manager.database.read() as tx:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if SECRET_COLUMN.search(column.name)]
            for column in columns:
                found |= {value for (value,) in await tx.execute(sa.select(column)) if value}
    return {value.decode() if isinstance(value, bytes) else str(value) for value in found}


async def test_bundle_has_facts_and_no_secrets(bai: Bai, api: Api, tmp_path: Path) -> None:
    await FakeAgent(api.agent).beat()
    await store_secrets(api)
    stored = await stored_secrets(api)
    # Secrets of keypairs, the webhook, the registry, a variable and a password.
    assert len(stored) >= len(api.world.keys) + 4
    file = tmp_path / "d.zip"
    done = await bai("admin", "diagnostics", file, "--json")
    assert done.document["failed"] == []
    with zipfile.ZipFile(file) as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert set(texts) == {f"{name}.json" for name in done.document["parts"]}
    system = json.loads(texts["system.json"])
    assert system["database"] == "sqlite"
    assert system["database_bytes"] > 0
    assert system["revision"] >= "0025"
    licences = {each["name"].lower(): each["licence"] for each in system["packages"]}
    assert licences["tornado"]
    everything = "".join(texts.values())
    files = (HUB_TOKEN, AGENT_TOKEN, GATEWAY_TOKEN, METRICS_TOKEN, KEY.decode())
    keypairs = (keypair.secret_key for keypair in api.world.keys.values())
    for secret in (*files, *PLAIN, *keypairs, *stored):
        assert secret not in everything
    refused = await bai("admin", "diagnostics", tmp_path / "e.zip", by="user")
    assert "could not read: system" in refused.stdout
