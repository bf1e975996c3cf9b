"""Names given by users."""

from __future__ import annotations

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.storage_hosts import PERMISSIONS, check_hosts
from bai_services.core.names import (
    check_email,
    check_networks,
    check_slug,
    check_username,
    excludes_addresses,
    is_inside,
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("default", id="plain"),
        pytest.param("team-1_a.b", id="all separators"),
        pytest.param("7", id="one digit"),
        pytest.param("a" * 64, id="maximum length"),
    ],
)
def test_valid_slug_is_unchanged(name: str) -> None:
    assert check_slug("project", name) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("a" * 65, id="too long"),
        pytest.param("Team", id="upper case"),
        pytest.param("a b", id="space"),
        pytest.param("../etc", id="a path"),
        pytest.param("a..b", id="two dots"),
        pytest.param("a--b", id="two hyphens"),
        pytest.param("-a", id="hyphen first"),
        pytest.param("a-", id="hyphen last"),
        pytest.param("a/b", id="slash"),
        pytest.param("a\n", id="line break at the end"),
        pytest.param("ｆｏｏ", id="full-width letters"),
        pytest.param("a!group=b", id="a scope filter"),
    ],
)
def test_invalid_slug_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a project"):
        check_slug("project", name)


def test_user_names_are_lower_case() -> None:
    assert check_username(" Ada.L ") == "ada.l"
    assert check_username("ada_") == "ada_"
    for wrong in ("", ".ada", "a b", "a..b", "a@b", "ü", "a" * 65):
        with pytest.raises(InvalidRequest, match="cannot be a user name"):
            check_username(wrong)


def test_email_address_is_accepted_or_rejected() -> None:
    assert check_email("Ada@Example.org") == "ada@example.org"
    for wrong in (
        "ada",
        "@example.org",
        "a@b@c",
        "a b@c",
        "a@-c",
        "a@c\nd",
        "a@b..c",
        "a" * 60 + "@b.cd",
    ):
        with pytest.raises(InvalidRequest, match="not an e-mail address"):
            check_email(wrong)


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
def test_address_is_inside_an_allowed_network_or_rejected(
    address: str, networks: list[str] | None, inside: bool
) -> None:
    assert is_inside(address, networks) is inside


def test_networks_are_normalized() -> None:
    assert check_networks(["10.1.2.3/8", " 192.168.0.1 "]) == ["10.0.0.0/8", "192.168.0.1/32"]
    with pytest.raises(InvalidRequest, match="is not a network"):
        check_networks(["10.0.0.0/33"])


def test_host_permissions_are_known_and_ordered() -> None:
    given = {"local": ["upload-file", "create-vfolder", "upload-file"]}
    assert check_hosts(given) == {"local": ["create-vfolder", "upload-file"]}
    assert check_hosts({"local": list(reversed(PERMISSIONS))}) == {"local": list(PERMISSIONS)}
    with pytest.raises(InvalidRequest, match="fly is not a permission"):
        check_hosts({"local": ["fly"]})


@pytest.mark.parametrize(
    "before, after, excludes",
    [
        pytest.param(None, None, False, id="no rule"),
        pytest.param(None, ["10.0.0.0/8"], True, id="first rule"),
        pytest.param(["10.0.0.0/8"], None, False, id="rule removed"),
        pytest.param(["10.0.0.0/8"], ["10.0.0.0/8", "::/0"], False, id="network added"),
        pytest.param(["10.1.0.0/16"], ["10.0.0.0/8"], False, id="wider network"),
        pytest.param(["10.0.0.0/8"], ["10.1.0.0/16"], True, id="narrower network"),
        pytest.param(["10.0.0.0/8", "::1/128"], ["10.0.0.0/8"], True, id="network removed"),
        pytest.param(["::/0"], ["0.0.0.0/0"], True, id="other version of IP"),
        pytest.param(["10.0.0.0/8"], [], True, id="no address is allowed"),
    ],
)
def test_excludes_addresses(
    before: list[str] | None, after: list[str] | None, excludes: bool
) -> None:
    assert excludes_addresses(before, after) is excludes
