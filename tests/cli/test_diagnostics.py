"""`bai admin diagnostics` and `GET /system`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.testbed.manager import AGENT_TOKEN, HUB_TOKEN, Api

from .conftest import Bai


async def test_bundle_has_facts_and_no_secrets(bai: Bai, api: Api, tmp_path: Path) -> None:
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
    for secret in (HUB_TOKEN, AGENT_TOKEN, *(k.secret_key for k in api.world.keys.values())):
        assert secret not in everything
    refused = await bai("admin", "diagnostics", tmp_path / "e.zip", by="user")
    assert "could not read: system" in refused.stdout
