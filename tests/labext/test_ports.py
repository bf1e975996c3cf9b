"""Ports of a session: names, listeners, reachability and messages."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address

import pytest

from bai_labext.listeners import Listener, listeners, read_listeners
from bai_labext.ports import Hosts, is_reachable, named_ports, port_problem, ready_host


@contextmanager
def listener_on(host: str) -> Iterator[int]:
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
async def test_a_listener_makes_a_port_reachable_over_ipv4_or_ipv6(
    host: str, expected: str
) -> None:
    with listener_on(host) as port:
        assert is_reachable(port, listeners())
        assert await ready_host(port, listeners()) == expected
    assert not is_reachable(port, listeners())
    assert await ready_host(port, listeners()) == ""


async def test_a_port_that_accepts_no_connection_does_not_block_the_event_loop() -> None:
    """The listener's queue is full: an attempt to connect ends only at its timeout."""
    with socket.socket(socket.AF_INET6) as server, ExitStack() as clients:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", 0))
        server.listen(0)
        port = int(server.getsockname()[1])
        for _ in range(3):
            client = clients.enter_context(socket.socket(socket.AF_INET))
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        finding = asyncio.ensure_future(Hosts().of(port))
        # If the attempt blocked the event loop, the attempt would be over when this wait ends.
        done, _ = await asyncio.wait([finding], timeout=0.02)
        assert not done
        assert await finding == "[::1]"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_netlink_and_procfs_list_the_same_listener(host: str) -> None:
    with listener_on(host) as port:
        (listener,) = (each for each in listeners() if each.port == port)
        assert listener == Listener(port, ip_address(host))
        assert listener in read_listeners(os.getuid())


def test_procfs_is_read_where_netlink_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK")
    with listener_on("127.0.0.1") as port:
        assert Listener(port, ip_address("127.0.0.1")) in listeners()


def test_listeners_of_other_users_are_omitted() -> None:
    with listener_on("127.0.0.1") as port:
        assert port not in {each.port for each in listeners(uid=4_000_000_000)}


def test_port_problem_names_the_reason_and_other_ports() -> None:
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


def test_named_ports_come_from_the_label_and_the_request() -> None:
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


def test_requested_ports_are_kept_if_the_label_is_invalid() -> None:
    environ = {"BAI_SERVICE_PORTS": "broken", "BAI_PREOPEN_PORTS": "8501"}
    assert [offer.port for offer in named_ports(environ)] == [8501]
