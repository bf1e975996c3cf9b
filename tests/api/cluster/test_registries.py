"""Image registries over REST: scans of a real registry with TLS and a password."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import AlreadyExists, InvalidRequest, InvalidTransition, NotFound
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.tables.cluster import image_registries
from bai_services.manager.cluster import registry_scans
from bai_services.manager.manager import Manager
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.fake_registry import FakeRegistry, serve_fake_registry
from tests.testbed.image_registry import PASSWORD, USERNAME, TlsRegistry, serving_registry
from tests.testbed.manager import Api, MovableClock, manager_on
from tests.testbed.wait import wait_until_async

LABELS = {"ai.backend.role": "COMPUTE", "ai.backend.resource.min.mem": "1g"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRegistry]:
    with serving_registry(tmp_path_factory.mktemp("registry")) as made:
        made.push("team/py", ["3.11", "3.12", "2.7"], LABELS)
        made.push("team/plain", ["1"])
        made.push("team/multi", ["1"], LABELS, ["amd64", "arm64"])
        made.push("team/wrong", ["1"], {"ai.backend.role": "NOTHING"})
        yield made


@pytest.fixture
async def manager(database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Manager]:
    settings = {"registry_reach": AllowedTargets.parse("", "127.0.0.0/8")}
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **settings) as made:
        made.cluster.registry_scans.start_threads()
        yield made


@pytest.fixture
async def admin(api: Api) -> Client:
    return await api.client("admin")


async def add(admin: Client, registry: TlsRegistry, **changes: Any) -> dict[str, Any]:
    spec = {
        "name": "lab",
        "url": registry.url,
        "username": USERNAME,
        "password": PASSWORD,
        "ca_certificate": registry.certificate,
        **changes,
    }
    return await admin.post("/image-registries", spec)


async def scan(api: Api, admin: Client, name: str = "lab") -> dict[str, Any]:
    await admin.post(f"/image-registries/{name}/scan")
    return await finish(api, admin, name)


async def finish(api: Api, admin: Client, name: str = "lab") -> dict[str, Any]:
    scans = api.world.manager.cluster.registry_scans
    await scans.step()
    await scans.wait()
    return await admin.get(f"/image-registries/{name}")


async def names(admin: Client, host: str) -> list[tuple[str, str]]:
    images = (await admin.get("/images", registry=host, limit=100))["items"]
    return sorted((i["name"].removeprefix(f"{host}/"), i["architecture"]) for i in images)


@pytest.mark.both_databases
@pytest.mark.checklist("REG-04")
async def test_a_scan_registers_the_labelled_images_of_a_registry(
    api: Api, admin: Client, registry: TlsRegistry
) -> None:
    await add(admin, registry, patterns=["team/py:3.*", "team/[mpw]*:1"])
    done = await scan(api, admin)
    assert done["scan_status"] == "done"
    counts = {name: done[f"scan_{name}"] for name in ("tags", "checked", "new", "changed")}
    assert counts == {"tags": 5, "checked": 5, "new": 4, "changed": 0}
    # The skipped images: one without labels, and one with an invalid label.
    assert done["scan_skipped"] == 2
    assert "team/wrong:1" in done["scan_problem"]
    assert await names(admin, registry.host) == [
        ("team/multi:1", "aarch64"),
        ("team/multi:1", "x86_64"),
        ("team/py:3.11", "x86_64"),
        ("team/py:3.12", "x86_64"),
    ]
    image = (await admin.get("/images", name=f"{registry.host}/team/py:3.12"))["items"][0]
    assert image["digest"] == image["registry_digest"] != ""
    assert image["size_bytes"] > 0
    assert image["min_slots"]["mem"] == "1g"
    assert image["is_active"] is False
    listed = await admin.get("/image-registries", has_password="true", sort="-has_password")
    assert [item["name"] for item in listed["items"]] == ["lab"]
    again = await scan(api, admin)
    assert (again["scan_new"], again["scan_changed"]) == (0, 0)


async def test_a_changed_tag_is_noticed_and_keeps_its_registered_digest(
    api: Api, admin: Client, registry: TlsRegistry
) -> None:
    before = registry.push("team/moving", ["1"], LABELS)
    await add(admin, registry, repositories=["team/moving"])
    await scan(api, admin)
    after = registry.push("team/moving", ["1"], LABELS, layer=b"new")
    assert (await scan(api, admin))["scan_changed"] == 1
    image = (await admin.get("/images", name=f"{registry.host}/team/moving:1"))["items"][0]
    assert (image["digest"], image["registry_digest"]) == (before, after)
    assert (await scan(api, admin))["scan_changed"] == 0


@pytest.mark.both_databases
async def test_images_of_deleted_tags_disappear_when_they_are_unused(
    api: Api, admin: Client, registry: TlsRegistry
) -> None:
    def push(tag: str) -> str:
        return registry.push("team/old", [tag], LABELS, layer=tag.encode())

    digests = {tag: push(tag) for tag in ("1", "2", "3", "4")}
    await add(admin, registry, repositories=["team/old"], activates_images=True)
    await scan(api, admin)
    of_tag = {tag: f"{registry.host}/team/old:{tag}" for tag in digests}
    session = await (await api.client("user")).post(
        "/sessions", {"image": of_tag["2"], "name": "uses-2"}
    )
    await admin.post("/image-aliases", {"alias": "old-four", "image": of_tag["4"]})
    for tag in ("1", "2", "4"):
        registry.delete("team/old", digests[tag])
    # Tags outside the scope of a scan are not considered deleted.
    await admin.patch("/image-registries/lab", {"patterns": ["team/old:3"]})
    assert (await scan(api, admin))["scan_removed"] == 0
    await admin.patch("/image-registries/lab", {"patterns": []})
    assert (await scan(api, admin))["scan_removed"] == 1
    images = (await admin.get("/images", registry=registry.host))["items"]
    problems = {image["name"]: image["registry_problem"] for image in images}
    assert sorted(problems) == [of_tag["2"], of_tag["3"], of_tag["4"]]
    assert problems[of_tag["3"]] == ""
    assert "was deleted in the registry" in problems[of_tag["2"]]
    assert "1 live session" in problems[of_tag["2"]]
    assert "1 alias" in problems[of_tag["4"]]
    (entry,) = (await admin.get("/audit-log", action="image.delete"))["items"]
    assert (entry["actor"], entry["entity_id"]) == ("manager", of_tag["1"])
    assert entry["details"]["reason"] == "the tag was deleted in the registry"

    # Restore one tag, and end the use of one image.
    push("4")
    await admin.delete(f"/sessions/{session['id']}")
    assert (await scan(api, admin))["scan_removed"] == 1
    images = (await admin.get("/images", registry=registry.host))["items"]
    problems = {image["name"]: image["registry_problem"] for image in images}
    assert problems == {of_tag["3"]: "", of_tag["4"]: ""}


async def test_an_image_remains_if_its_tag_cannot_be_checked(api: Api, admin: Client) -> None:
    async with serve_fake_registry(FakeRegistry(["1", "2"])) as fake:
        spec = {"name": "fake", "url": fake.url, "labelled_only": False}
        await admin.post("/image-registries", spec)
        await scan(api, admin, "fake")
        # The list of tags lacks tag 2. The image is removed only if the registry says that the tag
        # does not exist (404), not if the tag exists or the registry refuses to show it (403).
        fake.tags = ["1"]
        for refused, removed in (({}, 0), ({"2": 403}, 0), ({"2": 404}, 1)):
            fake.refused = refused
            assert (await scan(api, admin, "fake"))["scan_removed"] == removed


async def test_passwords_are_encrypted_and_never_returned(
    api: Api, admin: Client, registry: TlsRegistry
) -> None:
    made = await add(admin, registry)
    assert made["has_password"] is True
    changed = await admin.patch("/image-registries/lab", {"username": "other"})
    listed = await admin.get("/image-registries")
    log = await admin.get("/audit-log", limit=100)
    assert PASSWORD not in json.dumps([made, changed, listed, log])
    async with api.world.manager.database.read() as tx:
        stored = await tx.scalar(sa.select(image_registries.c.password_encrypted))
    assert stored and PASSWORD not in stored
    with pytest.raises(InvalidRequest, match="previous host"):
        await admin.patch("/image-registries/lab", {"url": "https://other.example.org"})
    with pytest.raises(InvalidRequest, match="needs an https URL"):
        await admin.patch("/image-registries/lab", {"url": registry.url.replace("https", "http")})
    removed = await admin.patch("/image-registries/lab", {"password": ""})
    assert removed["has_password"] is False


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"url": "https://a.org/v2"}, "url", id="path"),
        pytest.param({"kind": "ngc", "repositories": []}, "repositories", id="no catalog"),
        pytest.param({"ca_certificate": "no certificate"}, "ca_certificate", id="certificate"),
        pytest.param({"patterns": ["a b"]}, "patterns", id="pattern"),
        pytest.param({"rescan_seconds": 5}, "rescan_seconds", id="interval"),
    ],
)
async def test_invalid_registries_are_rejected(
    admin: Client, registry: TlsRegistry, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await add(admin, registry, **changes)
    assert field in str(caught.value.details) + caught.value.message


async def test_name_and_host_are_unique(admin: Client, registry: TlsRegistry) -> None:
    await add(admin, registry)
    for changes in ({"name": "other"}, {"url": "https://other.example.org"}):
        with pytest.raises(AlreadyExists):
            await add(admin, registry, **changes)
    await admin.delete("/image-registries/lab")
    with pytest.raises(NotFound):
        await admin.get("/image-registries/lab")
    ngc = await admin.post(
        "/image-registries", {"name": "ngc", "kind": "ngc", "repositories": ["nvidia/pytorch"]}
    )
    assert (ngc["host"], ngc["username"]) == ("nvcr.io", "$oauthtoken")


async def test_scans_fail_with_a_reason(api: Api, admin: Client, registry: TlsRegistry) -> None:
    await add(admin, registry, ca_certificate="")
    failed = await scan(api, admin)
    assert (failed["scan_status"], "certificate" in failed["scan_problem"]) == ("failed", True)
    await admin.patch(
        "/image-registries/lab", {"ca_certificate": registry.certificate, "password": "wrong"}
    )
    assert "refuses access" in (await scan(api, admin))["scan_problem"]


async def test_enabled_registries_are_scanned_at_their_interval(
    api: Api, admin: Client, registry: TlsRegistry, clock: MovableClock
) -> None:
    await add(admin, registry, rescan_seconds=600, repositories=["team/py"], is_enabled=False)
    assert (await finish(api, admin))["scan_status"] == "never"
    await admin.patch("/image-registries/lab", {"is_enabled": True})
    first = await finish(api, admin)
    assert (first["scan_status"], first["scan_requested_by"]) == ("done", "")
    assert (await finish(api, admin))["scan_ended_at"] == first["scan_ended_at"]
    clock.advance(seconds=601)
    assert (await finish(api, admin))["scan_ended_at"] != first["scan_ended_at"]


async def test_a_running_scan_can_be_cancelled(
    api: Api, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_scans, "WATCH_SECONDS", 0.01)
    scans = api.world.manager.cluster.registry_scans
    async with serve_fake_registry(FakeRegistry(is_silent=True)) as fake:
        await admin.post("/image-registries", {"name": "slow", "url": fake.url})
        await admin.post("/image-registries/slow/scan")
        await scans.step()
        await wait_until_async(lambda: "manifest" in fake.seen, 10, "the scan")
        with pytest.raises(InvalidTransition):
            await admin.post("/image-registries/slow/scan")
        running = await admin.get("/image-registries/slow")
        assert (running["scan_status"], running["scan_tags"]) == ("running", 1)
        cancelled = await admin.delete("/image-registries/slow/scan")
        assert cancelled["scan_status"] == "cancelled"
        await scans.wait()
        assert (await admin.get("/images", registry=fake.host))["items"] == []
    with pytest.raises(InvalidTransition):
        await admin.delete("/image-registries/slow/scan")


async def test_an_interrupted_scan_begins_again(api: Api, admin: Client) -> None:
    scans = api.world.manager.cluster.registry_scans
    async with serve_fake_registry(FakeRegistry(is_silent=True, labels=LABELS)) as fake:
        await admin.post("/image-registries", {"name": "slow", "url": fake.url})
        await admin.post("/image-registries/slow/scan")
        await scans.step()
        await wait_until_async(lambda: "manifest" in fake.seen, 10, "the scan")
        await scans.stop()
        fake.is_released.set()
        scans.start_threads()
        done = await finish(api, admin, "slow")
        assert (done["scan_status"], done["scan_new"], done["scan_checked"]) == ("done", 1, 1)


@pytest.mark.both_databases
@pytest.mark.checklist("REG-02")
async def test_only_allowed_projects_are_offered_the_images(
    api: Api, admin: Client, registry: TlsRegistry
) -> None:
    await add(admin, registry, repositories=["team/py"], activates_images=True, is_global=False)
    await scan(api, admin)
    user = await api.client("user")
    name = f"{registry.host}/team/py:3.12"

    async def is_offered() -> bool:
        options = await user.get("/sessions/options", resource_group="default")
        return name in [image["name"] for image in options["images"]]

    assert not await is_offered()
    with pytest.raises(NotFound, match="no image"):
        await user.post("/sessions", {"image": name})
    (project, *_) = (await user.get("/projects"))["items"]
    change = {"allowed_projects": [project["id"]]}
    changed = await admin.patch("/image-registries/lab", change)
    assert changed["allowed_projects"] == [f"{project['domain']}/{project['name']}"]
    # The request also accepts the names that the response contains.
    await admin.patch("/image-registries/lab", {"allowed_projects": changed["allowed_projects"]})
    assert await is_offered()
    await admin.patch("/image-registries/lab", {"is_enabled": False})
    assert not await is_offered()


async def test_pull_secrets_are_sent_to_the_agent_of_the_pull_only(
    api: Api, admin: Client, registry: TlsRegistry
) -> None:
    await add(admin, registry, repositories=["team/py"])
    await scan(api, admin)
    name = f"{registry.host}/team/py:3.12"
    agent = FakeAgent(api.agent, "d1", engine="docker", endpoint="unix:///x")
    await agent.beat(images=[], facts={})
    await admin.post("/images", {"name": "other.example.org/team/py:1", "labels": {}})
    images = [name, "other.example.org/team/py:1"]
    await admin.post("/image-pulls", {"images": images, "resource_group": "default"})
    items = {item["image"]: item for item in await agent.work()}
    assert items[name]["registry_auth"] == {"username": USERNAME, "password": PASSWORD}
    assert "registry_auth" not in items["other.example.org/team/py:1"]
    assert PASSWORD not in json.dumps(await admin.get("/image-pulls"))
