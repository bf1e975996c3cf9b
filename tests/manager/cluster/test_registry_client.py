"""Client of image registries: a real registry with TLS and a password, and one with faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest

from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.cluster import registry_client
from bai_services.manager.cluster.registry_client import RegistryAccess, RegistryClient
from bai_services.manager.imports.transfer import SourceError, shut_down
from tests.testbed.fake_registry import BASIC, TOKEN, FakeRegistry, serve_fake_registry
from tests.testbed.image_registry import PASSWORD, USERNAME, TlsRegistry, serving_registry
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until_async

LOCAL = AllowedTargets.parse("", "127.0.0.0/8")
LABELS = {"ai.backend.role": "COMPUTE"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRegistry]:
    with serving_registry(tmp_path_factory.mktemp("registry")) as made:
        made.push("team/py", ["3.11", "3.12"], LABELS)
        made.push("team/multi", ["1"], LABELS, ["amd64", "arm64"])
        yield made


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with serve_fake_registry() as made:
        yield made


def client_of(registry: TlsRegistry, **changes: str) -> RegistryClient:
    fields = {
        "username": USERNAME,
        "password": PASSWORD,
        "ca_certificate": registry.certificate,
        **changes,
    }
    access = RegistryAccess(registry.url, registry.host, **fields)
    return RegistryClient(access, LOCAL, first_delay_seconds=0.001)


def fake_client(
    fake: FakeRegistry, targets: AllowedTargets = LOCAL, seconds: float = 10.0
) -> RegistryClient:
    access = RegistryAccess(fake.url, fake.host, "robot", PASSWORD)
    return RegistryClient(access, targets, request_seconds=seconds, first_delay_seconds=0.001)


def test_tags_of_a_registry_with_tls_and_a_password(registry: TlsRegistry) -> None:
    client = client_of(registry)
    assert sorted(client.tags([], ["*:3.*"])) == [("team/py", "3.11"), ("team/py", "3.12")]
    assert client.tags(["team/multi"], []) == [("team/multi", "1")]
    with pytest.raises(SourceError, match="no such repository"):
        client.tags(["team/absent"], [])
    client.close()


def test_digest_size_architectures_and_labels_are_read_without_pulling(
    registry: TlsRegistry,
) -> None:
    client = client_of(registry)
    (image,) = client.inspect("team/py", "3.12", {})
    assert (image.name, image.architecture) == (f"{registry.host}/team/py:3.12", "x86_64")
    assert image.labels == LABELS
    digest = registry.push("team/py", ["3.12"], LABELS, layer=b"another layer")
    (changed,) = client.inspect("team/py", "3.12", {image.name: image.digest})
    assert changed.digest == digest != image.digest
    assert changed.size_bytes - image.size_bytes == len("another layer") - len("layer")
    assert client.inspect("team/py", "3.12", {image.name: digest}) == []
    images = client.inspect("team/multi", "1", {})
    assert [image.architecture for image in images] == ["x86_64", "aarch64"]
    client.close()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"ca_certificate": ""}, "certificate .* not valid", id="certificate"),
        pytest.param({"password": "wrong"}, "refuses access", id="password"),
        pytest.param({"password": ""}, "refuses access", id="no password"),
    ],
)
def test_rejected_credentials_or_certificate_are_reported(
    registry: TlsRegistry, changes: dict[str, str], problem: str
) -> None:
    client = client_of(registry, **changes)
    with closing(client), pytest.raises(SourceError, match=problem):
        client.tags([], [])


def test_a_registry_that_is_down_is_reported() -> None:
    port = free_port()
    access = RegistryAccess(f"http://127.0.0.1:{port}", f"127.0.0.1:{port}")
    with pytest.raises(SourceError, match="cannot be reached"):
        RegistryClient(access, LOCAL, first_delay_seconds=0.001).tags([], [])


async def test_private_address_is_rejected_unless_the_installation_allows_it(
    fake: FakeRegistry,
) -> None:
    client = fake_client(fake, AllowedTargets())
    with pytest.raises(SourceError, match="no public address"):
        await asyncio.to_thread(client.tags, [], [])
    assert not fake.seen


async def test_a_token_is_requested_once_for_each_repository(fake: FakeRegistry) -> None:
    fake.needs_token, fake.tags = True, [str(number) for number in range(150)]
    client = fake_client(fake)
    tags = await asyncio.to_thread(client.tags, ["team/py"], [])
    assert len(tags) == 150
    (image,) = await asyncio.to_thread(client.inspect, *tags[0], {})
    assert image.size_bytes == 100 + len(fake.config)
    assert fake.seen["token"] == [BASIC]
    assert fake.seen["manifest"] == [f"Bearer {TOKEN}"]
    client.close()


@pytest.mark.parametrize("has_digests", [True, False])
async def test_unchanged_tags_are_not_pulled_and_equal_images_are_read_once(
    fake: FakeRegistry, has_digests: bool
) -> None:
    fake.has_digests, fake.tags = has_digests, ["1", "2"]
    client = fake_client(fake)
    known = {}
    for tag in fake.tags:
        (image,) = await asyncio.to_thread(client.inspect, "team/py", tag, {})
        known[image.name] = image.digest
    assert fake.methods == ["GET manifest", "GET blob", "GET manifest"]
    fake.methods.clear()
    assert await asyncio.to_thread(client.inspect, "team/py", "1", known) == []
    # A registry may return no digest without the manifest.
    assert fake.methods == ["HEAD manifest", *([] if has_digests else ["GET manifest"])]
    client.close()


async def test_redirects_and_foreign_token_services_do_not_leak_credentials(
    fake: FakeRegistry,
) -> None:
    async with serve_fake_registry() as other:
        fake.needs_token, fake.blob_redirect = True, f"{other.url}/storage"
        client = fake_client(fake)
        assert await asyncio.to_thread(client.inspect, "team/py", "1", {})
        assert fake.seen["blob"] == [f"Bearer {TOKEN}"]
        assert other.seen["storage"] == [None]
        client.close()
        # A redirect does not reach a forbidden address.
        fake.blob_redirect = other.url.replace("127.0.0.1", "127.1.0.1") + "/storage"
        client = fake_client(fake, AllowedTargets.parse("", "127.0.0.0/16"))
        with pytest.raises(SourceError, match="no public address"):
            await asyncio.to_thread(client.inspect, "team/py", "1", {})
        client.close()


async def test_a_request_to_a_busy_registry_is_retried(fake: FakeRegistry) -> None:
    fake.failures = [503, 429]
    client = fake_client(fake)
    assert await asyncio.to_thread(client.tags, [], []) == [("team/py", "1")]
    fake.failures = [507] * 3
    with pytest.raises(SourceError, match="status 507"):
        await asyncio.to_thread(client.tags, [], [])
    client.close()


async def test_endless_lists_and_large_responses_are_rejected(fake: FakeRegistry) -> None:
    client = fake_client(fake)
    fake.is_endless = True
    with pytest.raises(SourceError, match="more than 5000 tags match"):
        await asyncio.to_thread(client.tags, ["team/py"], [])
    with pytest.raises(SourceError, match="more than 200 pages"):
        await asyncio.to_thread(client.tags, ["team/py"], ["team/py:none"])
    fake.body = b" " * (registry_client.MAX_MANIFEST_BYTES + 1)
    with pytest.raises(SourceError, match="has more than"):
        await asyncio.to_thread(client.inspect, "team/py", "1", {})
    for body in (b"[" * 200_000, b"no json", json.dumps({"layers": []}).encode()):
        fake.body = body
        with pytest.raises(SourceError):
            await asyncio.to_thread(client.inspect, "team/py", "1", {})
    client.close()


async def test_a_slow_registry_is_given_up_and_closing_ends_a_request(fake: FakeRegistry) -> None:
    fake.is_silent = True
    client = fake_client(fake, seconds=0.05)
    with pytest.raises(SourceError, match="cannot be reached|did not respond"):
        await asyncio.to_thread(client.inspect, "team/py", "1", {})
    client = fake_client(fake)
    fake.seen.clear()
    waiting = asyncio.create_task(asyncio.to_thread(client.inspect, "team/py", "1", {}))
    await wait_until_async(lambda: bool(fake.seen.get("manifest")), 10, "the request")
    client.close()
    with pytest.raises(SourceError):
        await waiting


async def test_a_connection_that_the_registry_has_closed_is_replaced(fake: FakeRegistry) -> None:
    client = fake_client(fake)
    await asyncio.to_thread(client.tags, [], [])
    (connections,) = client._idle.values()  # noqa: SLF001
    shut_down(connections[0].sock)
    assert await asyncio.to_thread(client.tags, [], []) == [("team/py", "1")]
    client.close()
