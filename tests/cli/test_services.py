"""`bai service`."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai


async def test_endpoint_from_creation_to_deletion(bai: Bai, api: Api, tmp_path: Path) -> None:
    await FakeAgent(api.agent).beat()
    made = await bai(
        "service", "create", "hello", "--variant", "cmd", "--command", "serve", "--replicas", "2",
        "-r", "cpu=1", "-r", "mem=1g", "-e", "SEED=1", "--health-path", "/ok", by="user",
    )  # fmt: skip
    assert (made.code, "/services/bai-serve/hello/" in made.stdout) == (0, True)
    assert "hello" in (await bai("service", "list", by="user")).stdout
    changed = await bai(
        "service", "update", "hello", "--command", "serve 2", "--strategy", "canary",
        "--canary-percent", "5", "--manual", "--max-queue", "7", by="user",
    )  # fmt: skip
    assert "revision 2 is being rolled out" in changed.stdout
    assert (await bai("service", "update", "hello", by="user")).code == 2
    shown = (await bai("service", "info", "hello", "--json", by="user")).document
    assert (shown["max_queue"], shown["target_revision"], shown["replicas"]) == (7, 2, 2)
    revisions = (await bai("service", "rollout", "hello", "--json", by="user")).document
    settings = revisions["items"][0]["settings"]
    assert (settings["rollout"]["canary_percent"], settings["health"]["path"]) == (5, "/ok")
    assert settings["request"] == {
        "resources": {"cpu": "1", "mem": "1g"},
        "environ": {"SEED": "1"},
    }
    assert "3 replicas" in (await bai("service", "scale", "hello", "3", by="user")).stdout
    assert (await bai("service", "rollback", "hello", "1", by="user")).code == 0
    assert (await bai("service", "promote", "hello", by="user")).code != 0
    assert "paused" in (await bai("service", "pause", "hello", by="user")).stdout
    assert "resumed" in (await bai("service", "resume", "hello", by="user")).stdout
    assert (await bai("service", "replicas", "hello", by="user")).code == 0
    created = await bai(
        "service", "token", "create", "hello", "app", "--network", "192.0.2.0/24",
        "--per-minute", "60", by="user",
    )  # fmt: skip
    assert "bais_" in created.stdout
    listed = await bai("service", "token", "list", "hello", by="user")
    assert ("app" in listed.stdout, "bais_" in listed.stdout) == (True, False)
    assert (await bai("service", "token", "revoke", "hello", "app", by="user")).code == 0
    definition = tmp_path / "model-definition.yaml"
    definition.write_text("models:\n- service:\n    prot: 1\n")
    wrong = await bai("service", "check", str(definition), by="user")
    assert (wrong.code, "line 3" in wrong.stderr) == (2, True)
    assert (await bai("service", "rm", "hello", by="user")).code == 0
