"""Client of model hubs, against a server with the same protocol."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator

import pytest

from bai_services.core.errors import Conflict
from bai_services.core.models.imports import RemoteFile
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.imports.transfer import SourceError, Transfer
from bai_services.manager.models.hub_client import HubClient
from tests.testbed.model_hub import (
    COMMIT,
    TOKEN,
    ModelHub,
    serve_bytes,
    serve_endless_head,
    serve_model_hub,
)

LARGE = bytes(range(256)) * 4096
LOCAL = AllowedTargets.parse("", "127.0.0.0/8")


@pytest.fixture
async def hub() -> AsyncIterator[ModelHub]:
    async with serve_model_hub(ModelHub({"config.json": b"{}", "w/model.bin": LARGE})) as hub:
        yield hub


def client_of(hub: ModelHub, targets: AllowedTargets = LOCAL, token: str = TOKEN) -> HubClient:
    return HubClient(hub.url, token, targets, first_delay_seconds=0.001)


async def download(
    hub: ModelHub,
    path: str = "w/model.bin",
    client: HubClient | None = None,
    transfer: Transfer | None = None,
) -> bytes:
    found = bytearray()
    client = client or client_of(hub)
    url = client.file_url(hub.repository, COMMIT, path)
    await asyncio.to_thread(
        client.download,
        url,
        RemoteFile(path, len(hub.files.get(path, b""))),
        write=found.extend,
        restart=found.clear,
        transfer=transfer or Transfer(),
    )
    return bytes(found)


async def test_model_is_described_and_downloaded(hub: ModelHub) -> None:
    hub.failures = [503, 429]
    info = await asyncio.to_thread(client_of(hub).info, "org/tiny", "main", Transfer())
    digest = hashlib.sha256(LARGE).hexdigest()
    assert info.commit == COMMIT
    assert info.files == [
        RemoteFile("config.json", 2),
        RemoteFile("w/model.bin", len(LARGE), digest),
    ]
    assert await download(hub, "config.json") == b"{}"
    assert await download(hub) == LARGE


async def test_token_is_sent_only_to_the_hub(hub: ModelHub) -> None:
    async with serve_model_hub(ModelHub(hub.files)) as other:
        hub.redirect = f"{other.url}/cdn/w/model.bin"
        assert await download(hub) == LARGE
    assert hub.tokens["resolve"] == {f"Bearer {TOKEN}"}
    assert other.tokens["cdn"] == {None}


def test_new_client_does_not_load_certificate_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them takes 20 ms of CPU time, and each manager creates three clients."""

    def load() -> ssl.SSLContext:
        raise AssertionError("certificate authorities are loaded")

    monkeypatch.setattr(ssl, "create_default_context", load)
    HubClient("https://hub.example.org", TOKEN, LOCAL).anonymous()


@pytest.mark.parametrize("has_ranges", [True, False])
async def test_interrupted_download_continues(hub: ModelHub, has_ranges: bool) -> None:
    hub.cut_after, hub.has_ranges = [100_000, 50_000], has_ranges
    transfer = Transfer()
    assert await download(hub, transfer=transfer) == LARGE
    assert transfer.bytes == len(LARGE)
    assert hub.ranges


async def test_download_ends_after_repeated_failures(hub: ModelHub) -> None:
    hub.cut_after = [0] * 20
    with pytest.raises(SourceError, match="closed before the end"):
        await download(hub)


async def test_slow_server_is_given_up(hub: ModelHub) -> None:
    hub.is_slow = True
    client = HubClient(hub.url, TOKEN, LOCAL, rate_window_seconds=0.2)
    async with asyncio.timeout(30):
        with pytest.raises(SourceError, match="less than 32 KiB per second"):
            await download(hub, client=client)


async def test_wrong_content_is_rejected(hub: ModelHub) -> None:
    hub.wrong = {"w/model.bin"}
    with pytest.raises(SourceError, match="does not match its checksum"):
        await download(hub)


async def test_missing_and_refused_models_are_reported(hub: ModelHub) -> None:
    hub.need_token = True
    without = client_of(hub, token="")
    with pytest.raises(SourceError, match="access is refused"):
        await asyncio.to_thread(without.info, "org/tiny", "main", Transfer())
    with pytest.raises(SourceError, match="no such model"):
        await asyncio.to_thread(client_of(hub).info, "org/other", "main", Transfer())
    with pytest.raises(SourceError, match="no such model"):
        await download(hub, "missing")


async def test_private_addresses_are_not_reached(hub: ModelHub) -> None:
    with pytest.raises(SourceError, match="no public address"):
        await download(hub, client=client_of(hub, AllowedTargets()))
    assert not hub.requests
    # Neither a name that resolves to a private address nor a redirect to one is accepted.
    by_name = HubClient("http://hub.example.org", "", AllowedTargets(), lambda *_: ["10.0.0.1"])
    with pytest.raises(SourceError, match="no public address"):
        await asyncio.to_thread(by_name.info, "org/tiny", "main", Transfer())
    hub.redirect = "http://169.254.169.254/latest"
    with pytest.raises(SourceError, match="no public address"):
        await download(hub)
    hub.redirect = "file:///etc/passwd"
    with pytest.raises(SourceError, match="invalid URL"):
        await download(hub)


async def test_messages_have_no_secret(hub: ModelHub) -> None:
    hub.cut_after = [0] * 20
    with pytest.raises(SourceError) as caught:
        await download(hub)
    assert "secret" not in str(caught.value) and TOKEN not in str(caught.value)
    assert TOKEN not in repr(client_of(hub))


async def test_cancelled_download_ends(hub: ModelHub) -> None:
    transfer = Transfer()
    transfer.cancel()
    with pytest.raises(Conflict, match="cancelled"):
        await download(hub, transfer=transfer)


async def test_download_ends_after_too_many_redirects(hub: ModelHub) -> None:
    hub.redirect = f"{hub.url}/org/tiny/resolve/{COMMIT}/w/model.bin"
    with pytest.raises(SourceError, match="redirects more than"):
        await download(hub)


async def test_invalid_host_name_is_reported() -> None:
    client = HubClient("https://hub.example.org", "", AllowedTargets())
    with pytest.raises(SourceError, match="not valid"):
        await asyncio.to_thread(client.size_of, f"https://{'a' * 64}.org/model.bin", Transfer())


async def test_endless_head_is_given_up() -> None:
    async with serve_endless_head(is_silent=False) as (url, _), asyncio.timeout(30):
        client = HubClient(url, "", LOCAL, first_delay_seconds=0.001, head_seconds=0.05)
        with pytest.raises(SourceError, match="cannot be reached"):
            await asyncio.to_thread(client.size_of, f"{url}/model.bin", Transfer())


CHUNKED = b"HTTP/1.1 200 OK\r\nX-Linked-Size: 10\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = CHUNKED + b"a\r\n0123456789\r\n"


@pytest.mark.parametrize(
    ("start", "repeated", "problem"),
    [
        pytest.param(CHUNKED, b"4\r\nabcd\r\n", "longer than announced", id="endless body"),
        pytest.param(WHOLE + b"0\r\n", b"X: y\r\n" * 1000, "", id="endless trailer"),
        pytest.param(CHUNKED + b"1;", b"x" * 9999, "cannot be reached", id="endless extension"),
        pytest.param(WHOLE + b"1\r\nx\r\n0\r\n\r\n", b"", "longer than", id="one byte more"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n012345678", b"",
            "size that was announced", id="another size",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012", b"", "was closed before",
            id="cut off",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012345678?", b"", "checksum",
            id="another content",
        ),
    ],
)  # fmt: skip
async def test_download_ends_if_the_response_is_endless_or_contradicts_the_file(
    start: bytes, repeated: bytes, problem: str
) -> None:
    found = bytearray()
    file = RemoteFile("model.bin", 10, hashlib.sha256(b"0123456789").hexdigest())
    async with serve_bytes(start, repeated) as url, asyncio.timeout(30):
        # Only the endless trailer must reach the time limit, even on a slow machine.
        end_seconds = 20 if problem else 0.1
        client = HubClient(url, "", LOCAL, first_delay_seconds=0.001, end_seconds=end_seconds)

        def download() -> None:
            client.download(
                f"{url}/model.bin", file, write=found.extend, restart=found.clear,
                transfer=Transfer(),
            )  # fmt: skip

        if problem:
            with pytest.raises(SourceError, match=problem):
                await asyncio.to_thread(download)
        else:
            await asyncio.to_thread(download)
            assert found == b"0123456789"


async def test_download_uses_the_checked_address_if_the_name_then_changes(hub: ModelHub) -> None:
    """DNS rebinding: after the check, the name could resolve to a forbidden address."""
    lookups: list[str] = []

    def look_up(host: str, port: int) -> list[str]:
        # The first answer is allowed; all others are an address that must not be reached.
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["10.0.0.1"]

    port = hub.url.rpartition(":")[2]
    base = f"http://hub.example.org:{port}"
    client = HubClient(base, "", LOCAL, look_up, 0.001)
    assert await asyncio.to_thread(client.size_of, f"{base}/cdn/config.json", Transfer())
    assert lookups == ["hub.example.org"]
    with pytest.raises(SourceError, match="no public address"):
        await asyncio.to_thread(client.size_of, f"{base}/cdn/config.json", Transfer())
    assert hub.requests["cdn"] == 1


async def test_cancelling_ends_a_call_that_waits_for_the_server() -> None:
    transfer = Transfer()
    async with serve_endless_head(is_silent=True) as (url, is_requested), asyncio.timeout(30):
        client = HubClient(url, "", LOCAL)
        waiting = asyncio.create_task(
            asyncio.to_thread(client.size_of, f"{url}/model.bin", transfer)
        )
        await is_requested.wait()
        transfer.cancel()
        with pytest.raises(Conflict, match="cancelled"):
            await waiting
