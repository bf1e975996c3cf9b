"""One callback request: receivers that are slow, fail or redirect, and denied addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.sessions.callback_calls import CallbackCalls, CallFailed, look_up
from tests.testbed.receiver import Receiver, serve_receiver

LOOPBACK = AllowedTargets.parse("", "127.0.0.1/32")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serve_receiver() as made:
        yield made


class FakeResolver:
    """A name resolver that returns the given addresses, one list per lookup."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.lookups: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.lookups.append(host)
        return self.answers.pop(0)


@asynccontextmanager
async def callback_calls(
    targets: AllowedTargets = LOOPBACK, resolver: FakeResolver | None = None, seconds: float = 60
) -> AsyncIterator[CallbackCalls]:
    calls = CallbackCalls(targets, resolver or look_up, seconds)
    try:
        yield calls
    finally:
        await calls.close()


async def test_request_has_body_and_headers(receiver: Receiver) -> None:
    async with callback_calls() as calls:
        await calls.post(receiver.url + "?a=%20b", b'{"a":1}', {"Bai-Delivery": "7"})
    (call,) = receiver.calls
    assert (call.path, call.body, call.headers["Bai-Delivery"]) == (
        "/callback?a=%20b",
        b'{"a":1}',
        "7",
    )
    assert "Cookie" not in call.headers


async def test_error_contains_the_status_but_not_the_body_of_the_response(
    receiver: Receiver,
) -> None:
    receiver.answers.extend([500, 404])
    async with callback_calls() as calls:
        for status in (500, 404):
            with pytest.raises(
                CallFailed, match=f"^the receiver responded with status {status}$"
            ) as failed:
                await calls.post(receiver.url, b"", {})
            assert not failed.value.is_final


async def test_redirect_is_not_followed(receiver: Receiver) -> None:
    async with serve_receiver() as other, callback_calls() as calls:
        receiver.answers.append(other.url)
        with pytest.raises(CallFailed, match="status 302; redirects are not followed"):
            await calls.post(receiver.url, b"", {})
        assert other.calls == []


async def test_unresponsive_receiver_times_out(receiver: Receiver) -> None:
    receiver.may_respond.clear()
    async with callback_calls(seconds=0.2) as calls:
        with pytest.raises(CallFailed, match="did not respond in time"):
            await calls.post(receiver.url, b"", {})
    assert len(receiver.calls) <= 1


async def test_response_body_is_not_read(receiver: Receiver) -> None:
    receiver.is_endless = True
    receiver.answers.append(200)
    async with callback_calls() as calls:
        await calls.post(receiver.url, b"", {})
    assert len(receiver.calls) == 1


async def test_receiver_without_http_is_an_error() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org\r\n")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, callback_calls() as calls:
        with pytest.raises(CallFailed, match="did not speak HTTP"):
            await calls.post(f"http://127.0.0.1:{port}/", b"", {})
    async with callback_calls() as calls:
        with pytest.raises(CallFailed, match="could not be reached"):
            await calls.post(f"http://127.0.0.1:{port}/", b"", {})


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "2130706433"])
async def test_loopback_addresses_are_not_called(receiver: Receiver, host: str) -> None:
    async with callback_calls(AllowedTargets()) as calls:
        with pytest.raises(CallFailed):
            await calls.post(f"http://{host}:{receiver.port}/", b"", {})
    assert receiver.calls == []


async def test_only_allowed_addresses_of_a_name_are_called(receiver: Receiver) -> None:
    url = f"http://hooks.example.org:{receiver.port}/"
    resolver = FakeResolver(["10.9.9.9", "127.0.0.1", "::1"], ["10.9.9.9", "169.254.169.254"])
    async with callback_calls(resolver=resolver) as calls:
        await calls.post(url, b"", {})
        with pytest.raises(CallFailed, match="no address that callbacks may reach") as failed:
            await calls.post(url, b"", {})
    assert failed.value.is_final
    assert [call.headers["Host"] for call in receiver.calls] == [
        f"hooks.example.org:{receiver.port}"
    ]


async def test_name_is_resolved_only_once(receiver: Receiver) -> None:
    # A second lookup would return an address that is not allowed, and the call would go to
    # ``other``.
    async with serve_receiver("127.0.0.2", receiver.port) as other:
        resolver = FakeResolver(["127.0.0.1"], ["127.0.0.2"])
        async with callback_calls(resolver=resolver) as calls:
            await calls.post(f"http://hooks.example.org:{receiver.port}/", b"", {})
        assert resolver.lookups == ["hooks.example.org"]
        assert (len(receiver.calls), other.calls) == (1, [])


async def test_unknown_host_is_a_temporary_error() -> None:
    async with callback_calls() as calls:
        with pytest.raises(CallFailed) as failed:
            await calls.post("http://nothing.invalid/", b"", {})
    assert not failed.value.is_final


async def test_target_that_is_no_longer_allowed_is_not_called(receiver: Receiver) -> None:
    for targets in (
        AllowedTargets.parse("none", "127.0.0.0/8"),
        AllowedTargets.parse("other.example.org", ""),
    ):
        resolver = FakeResolver(["127.0.0.1"])
        async with callback_calls(targets, resolver) as calls:
            with pytest.raises(CallFailed, match="no longer allowed"):
                await calls.post(f"http://hooks.example.org:{receiver.port}/", b"", {})
    assert receiver.calls == []


async def test_proxy_variables_are_ignored(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_receiver() as proxy:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with callback_calls() as calls:
            await calls.post(receiver.url, b"", {})
        assert (len(receiver.calls), proxy.calls) == (1, [])
