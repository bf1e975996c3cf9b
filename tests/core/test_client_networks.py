"""Networks from which an account or an app share may be used."""

from __future__ import annotations

import pytest

from bai_services.core.client_networks import check_networks, excludes_addresses, is_inside
from bai_services.core.errors import InvalidRequest


@pytest.mark.parametrize(
    "address, networks, inside",
    [
        pytest.param("10.1.2.3", None, True, id="no list: all addresses"),
        pytest.param("10.1.2.3", [], False, id="empty list: no address"),
        pytest.param("10.1.2.3", ["10.0.0.0/8"], True, id="inside the network"),
        pytest.param(
            "11.1.2.3", ["10.0.0.0/8", "11.1.2.3/32"], True, id="inside the second network"
        ),
        pytest.param(
            "11.1.2.4", ["10.0.0.0/8", "11.1.2.3/32"], False, id="outside of both networks"
        ),
        pytest.param("::ffff:10.1.2.3", ["10.0.0.0/8"], True, id="IPv4-mapped IPv6"),
        pytest.param("2001:db8::1", ["10.0.0.0/8"], False, id="other IP version"),
        pytest.param("", ["0.0.0.0/0"], False, id="unknown address"),
    ],
)
def test_address_is_allowed_if_it_is_inside_an_allowed_network(
    address: str, networks: list[str] | None, inside: bool
) -> None:
    assert is_inside(address, networks) is inside


def test_networks_are_normalized() -> None:
    assert check_networks(["10.1.2.3/8", " 192.168.0.1 "]) == ["10.0.0.0/8", "192.168.0.1/32"]
    with pytest.raises(InvalidRequest, match="is not a network"):
        check_networks(["10.0.0.0/33"])


@pytest.mark.parametrize("text", ["::ffff:10.0.0.0/104", "::ffff:10.1.2.3", "::ffff:0:0/96"])
def test_network_of_ipv4_mapped_addresses_contains_both_forms_of_an_address(text: str) -> None:
    networks = check_networks([text])
    assert is_inside("10.1.2.3", networks) and is_inside("::ffff:10.1.2.3", networks)
    assert not is_inside("2001:db8::1", networks)
    assert check_networks(networks) == networks


@pytest.mark.parametrize(
    "before, after, excludes",
    [
        pytest.param(None, None, False, id="no list before and after"),
        pytest.param(None, ["10.0.0.0/8"], True, id="first list"),
        pytest.param(["10.0.0.0/8"], None, False, id="list removed"),
        pytest.param(["10.0.0.0/8"], ["10.0.0.0/8", "::/0"], False, id="network added"),
        pytest.param(["10.1.0.0/16"], ["10.0.0.0/8"], False, id="wider network"),
        pytest.param(["10.0.0.0/8"], ["10.1.0.0/16"], True, id="narrower network"),
        pytest.param(["10.0.0.0/8", "::1/128"], ["10.0.0.0/8"], True, id="network removed"),
        pytest.param(
            ["10.0.0.0/8"],
            ["10.0.0.0/9", "10.128.0.0/9"],
            False,
            id="network replaced by its two halves",
        ),
        pytest.param(
            ["10.0.0.0/8"],
            ["10.0.0.0/9", "10.128.0.0/10"],
            True,
            id="network replaced by three quarters of the network",
        ),
        pytest.param(["::/0"], ["0.0.0.0/0"], True, id="network of the other IP version"),
        pytest.param(["10.0.0.0/8"], [], True, id="no address is allowed"),
    ],
)
def test_change_that_excludes_allowed_addresses_is_detected(
    before: list[str] | None, after: list[str] | None, excludes: bool
) -> None:
    assert excludes_addresses(before, after) is excludes
