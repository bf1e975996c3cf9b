"""Ports of a session: named, listened on, not reachable."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address

import pytest

from bai_labext.listeners import Listener, listeners, read_listeners
from bai_labext.ports import Hosts, is_reachable, named_ports, ready_host, port_problem


@contextmanager
def listening(host: str) -> Iterator[int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        if family is socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        server.listen()
        yield int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("::", "::1")],
)
async def test_a_port_is_open_as_soon_as_something_listens_over_ipv6_alone_too(
    host: str, expected: str
) -> None:
    with listening(host) as port:
        assert is_reachable(port, listeners())
        assert await ready_host(port, listeners()) == expected
    assert not is_reachable(port, listeners())
    assert await ready_host(port, listeners()) == ""


async def test_a_port_that_accepts_no_connection_does_not_stop_the_event_loop() -> None:
    """The accept queue of the listener is full: a connection to it hangs until it is given up."""
    with socket.socket(socket.AF_INET6) as server, ExitStack() as waiting:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", 0))
        server.listen(0)
        port = int(server.getsockname()[1])
        for _ in range(3):
            client = waiting.enter_context(socket.socket(socket.AF_INET))
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        finding = asyncio.ensure_future(Hosts().of(port))
        turns = 0
        while not finding.done():
            await asyncio.wait([finding], timeout=0.02)
            turns += 1
        assert await finding == "[::1]"
        assert turns > 5


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_kernel_tells_what_its_text_says(host: str) -> None:
    with listening(host) as port:
        (told,) = (each for each in listeners() if each.port == port)
        assert told == Listener(port, ip_address(host))
        assert told in read_listeners(os.getuid())


def test_where_programs_may_not_ask_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK")
    with listening("127.0.0.1") as port:
        assert Listener(port, ip_address("127.0.0.1")) in listeners()


def test_what_others_listen_on_is_not_seen() -> None:
    with listening("127.0.0.1") as port:
        assert port not in {each.port for each in listeners(uid=4_000_000_000)}


def test_a_port_that_is_not_open_says_what_is_instead() -> None:
    found = [
        Listener(8502, ip_address("127.0.0.1")),
        Listener(8888, ip_address("::1")),
        Listener(9000, ip_address("10.0.0.7")),
    ]
    assert port_problem(8501, found, [8501, 8888]) == (
        "Nothing listens on port 8501 yet. Your programs listen on 8502."
    )
    assert port_problem(8501, [], []) == "Nothing listens on port 8501 yet."
    assert port_problem(9000, found, []) == (
        "The program on port 9000 accepts connections to 10.0.0.7 only; "
        "make it listen on 127.0.0.1 or 0.0.0.0."
    )


def test_the_label_and_the_start_name_ports() -> None:
    environ = {
        "BAI_SERVICE_PORTS": (
            "jupyterlab:http:8090,nniboard:http:9090,triton:http:[8000,8001],x:preopen:3000,"
            "raw:tcp:9999,tensorboard:http:6006"
        ),
        "BAI_PREOPEN_PORTS": "8501, 3000,nonsense",
    }
    found = {offer.app.name: (offer.app.title, offer.port) for offer in named_ports(environ)}
    assert found == {
        "nniboard": ("NNI", 9090),
        "triton-8000": ("triton-8000", 8000),
        "triton-8001": ("triton-8001", 8001),
        "x": ("x", 3000),
        "port-8501": ("Port 8501", 8501),
    }


def test_a_label_that_is_not_right_leaves_the_ports_of_the_start() -> None:
    environ = {"BAI_SERVICE_PORTS": "broken", "BAI_PREOPEN_PORTS": "8501"}
    assert [offer.port for offer in named_ports(environ)] == [8501]
