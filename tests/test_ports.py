"""Free ports: unused, and outside the ephemeral range."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path

import pytest

from bai_services.system import ports
from tests.testbed.ports import free_port


def test_free_port_is_below_the_ephemeral_range() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 32_000:
        pytest.skip(f"the ephemeral range of this machine starts at {first}")
    for _ in range(50):
        port = ports.free_port()
        assert 20_000 <= port < first
        assert ports.is_free(port)


def test_used_port_is_not_chosen() -> None:
    with socket.socket() as server:
        chosen = ports.free_port(19_990, 1)
        server.bind(("127.0.0.1", chosen))
        server.listen()
        assert not ports.is_free(chosen)
        assert ports.free_port(chosen, 1) != chosen


@pytest.mark.parametrize(
    "ephemeral_range", ["1024\t65535\n", "", "nonsense"], ids=["all ports", "empty", "invalid"]
)
def test_kernel_proposes_a_port_if_the_ephemeral_range_overlaps_or_is_unknown(
    ephemeral_range: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(ephemeral_range)
    monkeypatch.setattr(ports, "_EPHEMERAL_RANGE", tmp_path / "range")
    # Only port 20,000 is in the requested range; the kernel has thousands of ports to choose from.
    chosen = {ports.free_port(20_000, 1) for _ in range(5)}
    assert chosen != {20_000}
    assert all(ports.is_free(port) for port in chosen)


def test_port_numbers_out_of_range_are_not_free() -> None:
    assert not ports.is_free(0)
    assert not ports.is_free(ports.HIGHEST + 1)


def test_test_processes_share_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = 8
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    chosen: list[set[int]] = []
    for worker in range(workers):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        chosen.append({free_port() for _ in range(30)})
    for lower, higher in pairwise(chosen):
        assert max(lower) < min(higher)
    assert min(chosen[0]) >= 10_000 and max(chosen[-1]) < 20_000
