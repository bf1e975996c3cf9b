"""Free ports: where nobody listens, and where no client's own port can come to be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bai_services import ports


def test_a_free_port_is_none_that_clients_are_lent() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first < 32_000:
        pytest.skip(f"this machine lends ports from {first} on to clients")
    for _ in range(50):
        port = ports.free_port()
        assert 20_000 <= port < first
        assert ports.is_free(port)


def test_a_port_in_use_is_not_chosen() -> None:
    with socket.socket() as server:
        chosen = ports.free_port(19_990, 1)
        server.bind(("127.0.0.1", chosen))
        server.listen()
        assert not ports.is_free(chosen)
        assert ports.free_port(chosen, 1) != chosen


@pytest.mark.parametrize("lent", ["1024\t65535\n", "", "nonsense"])
def test_where_every_port_is_lent_the_kernel_proposes(
    lent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(lent)
    monkeypatch.setattr(ports, "_LENT_TO_CLIENTS", tmp_path / "range")
    assert ports.is_free(ports.free_port())


def test_no_port_is_below_one_or_above_the_highest() -> None:
    assert not ports.is_free(0)
    assert not ports.is_free(ports.HIGHEST + 1)
