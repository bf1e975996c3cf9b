"""`bai apply` against a real manager."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bai_services.cli.admin import apply
from bai_services.cli.admin.difference import Change

from .conftest import Bai

HUB = """\
keypair_policies:
  - name: default
    max_concurrent_sessions: 9
  - name: research
    total_resource_slots: {cpu: 8, mem: 32g, cuda.shares: 1.5}
    max_concurrent_sessions: 5
user_policies:
  - name: default
    max_vfolder_count: 20
project_policies:
  - name: default
images:
  - name: bai-session
    architecture: x86_64
    min_slots: {cpu: 1, mem: 512m}
    aliases: [session, py]
resource_groups:
  - name: gpu
    engine: docker
    is_public: false
    links: {domain: [research], project: [research/vision], user: [alice]}
presets:
  - name: small
    resource_slots: {cpu: 1, mem: 2048m}
    shared_memory: 64m
domains:
  - name: research
    total_resource_slots: {cuda.shares: 4}
projects:
  - name: default
    domain: research
    description: for everybody
  - name: vision
    domain: research
    default_image: session
    members: [alice, bob]
users:
  - username: Alice
    email: alice@example.org
    domain: research
    role: admin
    password_file: alice.password
    keypair_policy: research
  - username: bob
    email: bob@example.org
    domain: research
    password_env: BOB_PASSWORD
    allowed_client_ip: [127.0.0.1]
  - username: carol
    email: carol@example.org
    domain: research
    generate_password: true
"""
PASSWORDS = {"BOB_PASSWORD": "Other-passw0rd"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "alice.password").write_text("First-passw0rd\n")
    path = tmp_path / "hub.yaml"
    path.write_text(HUB)
    return path


def write(file: Path, text: str) -> None:
    file.write_text(text)


def names(document: Any, action: str) -> list[str]:
    return [
        f"{change['kind']} {change['name']}"
        for change in document["changes"]
        if change["action"] == action
    ]


async def test_apply_is_idempotent(bai: Bai, file: Path) -> None:
    dry = await bai("apply", "-f", file, "--dry-run", "--json", **PASSWORDS)
    assert (dry.code, dry.stderr, dry.document["applied"]) == (0, "", False)
    assert (await bai("admin", "domain", "show", "research")).code == 4

    done = await bai("apply", "-f", file, "--json", **PASSWORDS)
    assert (done.code, done.stderr, done.document["applied"]) == (0, "", True)
    assert names(done.document, "create") == [
        "keypair-policy research",
        "image x86_64/bai-session:latest",
        "alias session",
        "alias py",
        "domain research",
        "project research/vision",
        "user alice",
        "user bob",
        "user carol",
        "group gpu",
        "preset small",
        "member research/vision: alice",
        "member research/vision: bob",
        "link gpu: domain/research",
        "link gpu: project/research%2Fvision",
        "link gpu: user/alice",
    ]
    # Project research/default was created with the domain, so the file updates it.
    assert names(done.document, "update") == [
        "keypair-policy default",
        "user-policy default",
        "project research/default",
    ]
    assert list(done.document["passwords"]) == ["carol"]

    again = await bai("apply", "-f", file, **PASSWORDS)
    assert (again.code, again.stdout, again.stderr) == (0, "nothing to change\n", "")
    as_json = await bai("apply", "-f", file, "--json", **PASSWORDS)
    assert as_json.document == {"applied": True, "changes": [], "passwords": {}}


async def test_only_generated_passwords_are_printed(bai: Bai, file: Path) -> None:
    dry = await bai("apply", "-f", file, "--dry-run", **PASSWORDS)
    done = await bai("apply", "-f", file, **PASSWORDS)
    for output in (dry.stdout, done.stdout):
        assert "passw0rd" not in output
    assert "password of" not in dry.stdout
    assert re.search(r"^initial password of carol: \S{20,}$", done.stdout, re.MULTILINE)


async def test_apply_reverts_manual_changes(bai: Bai, file: Path) -> None:
    await bai("apply", "-f", file, **PASSWORDS)
    await bai("admin", "domain", "update", "research", "--total-resource-slots", "cuda.shares=8")
    await bai("admin", "project", "members", "rm", "research/vision", "bob")
    await bai("admin", "user", "delete", "carol")
    dry = await bai("apply", "-f", file, "--dry-run", **PASSWORDS)
    assert dry.stdout.splitlines() == [
        "~ domain research",
        "    total_resource_slots: cuda.shares=8 → cuda.shares=4",
        "~ user carol",
        "    status: deleted → active",
        "+ member research/vision: bob",
        "1 to create, 2 to update",
    ]
    done = await bai("apply", "-f", file, **PASSWORDS)
    assert done.stdout.splitlines()[-1] == "1 created, 2 updated"
    assert (await bai("apply", "-f", file, **PASSWORDS)).stdout == "nothing to change\n"


async def test_prune_deletes_only_objects_of_sections_in_the_file(bai: Bai, file: Path) -> None:
    await bai("apply", "-f", file, **PASSWORDS)
    write(
        file,
        "projects:\n- {name: default, domain: default}\n- {name: research, domain: default}\n"
        "- {name: default, domain: acme}\n- {name: default, domain: research}",
    )
    kept = await bai("apply", "-f", file, "--json")
    assert kept.document["changes"] == []
    pruned = await bai("apply", "-f", file, "--prune", "--json")
    assert names(pruned.document, "delete") == ["project research/vision"]
    assert (await bai("admin", "user", "show", "alice")).code == 0


async def test_prune_never_deletes_the_caller(bai: Bai, file: Path) -> None:
    write(file, "users: []")
    done = await bai("apply", "-f", file, "--prune", "--dry-run", "--json")
    assert names(done.document, "delete") == [
        "user acme-user",
        "user domain-admin",
        "user monitor",
        "user user",
        "user user2",
    ]


async def test_invalid_file_changes_nothing(bai: Bai, file: Path) -> None:
    write(file, HUB + "  - {username: dan, email: dan@example.org, domain: default, rank: high}\n")
    done = await bai("apply", "-f", file, "--json", **PASSWORDS)
    assert (done.code, done.stdout) == (2, "")
    line = HUB.count("\n") + 1
    assert done.error["message"].startswith(f"{file}:{line}: unknown field 'rank' of a user")
    assert (await bai("admin", "domain", "show", "research")).code == 4


async def test_error_reports_the_changes_made_before_the_error(bai: Bai, file: Path) -> None:
    write(
        file,
        "users:\n"
        "- {username: dan, email: dan@example.org, domain: default, generate_password: true}\n"
        "- {username: eve, email: dan@example.org, domain: default}\n",
    )
    done = await bai("apply", "-f", file, "--json")
    assert (done.code, done.stdout, done.error["error"]) == (1, "", "already-exists")
    details = done.error["details"]
    assert names(details, "create") == ["user dan"]
    assert list(details["passwords"]) == ["dan"]


async def test_domain_admin_can_apply_to_own_domain(bai: Bai, file: Path) -> None:
    write(
        file,
        "projects:\n- {name: vision, domain: default, members: [user]}\n"
        "users:\n- {username: dan, email: dan@example.org, domain: default}\n",
    )
    done = await bai("apply", "-f", file, by="domain-admin")
    assert (done.code, done.stdout.splitlines()[-1]) == (0, "3 created")
    assert (await bai("apply", "-f", file, by="domain-admin")).stdout == "nothing to change\n"
    refused = await bai("apply", "-f", file, by="user")
    assert refused.code == 5


async def test_domain_admin_cannot_apply_to_another_domain(bai: Bai, file: Path) -> None:
    write(file, "projects:\n- {name: vision, domain: acme}\n")
    done = await bai("apply", "-f", file, by="domain-admin")
    assert (done.code, done.stdout) == (4, "")
    assert "there is no such object" in done.stderr
    assert (await bai("admin", "project", "show", "vision")).code == 4


@pytest.mark.parametrize("no_color", [False, True], ids=["colour", "NO_COLOR"])
def test_changes_have_a_colour_unless_no_color_is_set(
    no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    drawn = io.StringIO()
    monkeypatch.setattr(apply.output, "console", lambda: Console(file=drawn, force_terminal=True))
    apply.print_change(Change("create", "domain", "lab", "POST", "/domains"))
    assert "+ domain lab" in drawn.getvalue()
    assert ("\x1b[32m" in drawn.getvalue()) is not no_color
