"""Callbacks: allowed targets, signature, retries."""

from __future__ import annotations

import hashlib
import hmac
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.registries import check_registry_url
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.callbacks import (
    MAX_ATTEMPTS,
    MAX_DELAY,
    AllowedTargets,
    body_of,
    check_url,
    is_public,
    retry_delay,
    secret_of,
    signature,
)

PUBLIC = AllowedTargets()

ADDRESSES = [
    ("a public address", "93.184.216.34", True),
    ("a public IPv6 address", "2606:2800:220:1::1", True),
    ("loopback", "127.0.0.1", False),
    ("loopback other than 127.0.0.1", "127.8.9.10", False),
    ("IPv6 loopback", "::1", False),
    ("the unspecified address", "0.0.0.0", False),
    ("the unspecified IPv6 address", "::", False),
    ("a private network, class A", "10.0.0.1", False),
    ("a private network, class B", "172.16.0.1", False),
    ("a private network, class C", "192.168.1.1", False),
    ("a private IPv6 network", "fd12::1", False),
    ("carrier-grade NAT", "100.64.0.1", False),
    ("a cloud metadata service, link-local", "169.254.169.254", False),
    ("a cloud metadata service in a shared range", "100.100.100.200", False),
    ("a cloud metadata service in a public range", "168.63.129.16", False),
    ("a cloud metadata service in a protocol range", "192.0.0.192", False),
    ("a cloud metadata service, IPv6", "fd00:ec2::254", False),
    ("IPv6 link-local with a zone", "fe80::1%eth0", False),
    ("IPv6 site-local", "fec0::1", False),
    ("multicast", "224.0.0.1", False),
    ("IPv6 multicast", "ff02::1", False),
    ("broadcast", "255.255.255.255", False),
    ("reserved", "240.0.0.1", False),
    ("documentation", "203.0.113.1", False),
    ("IPv6 documentation", "2001:db8::1", False),
    ("a private address mapped into IPv6", "::ffff:10.0.0.1", False),
    ("a public address mapped into IPv6", "::ffff:93.184.216.34", True),
    ("loopback as an IPv4-compatible IPv6 address", "::127.0.0.1", False),
    ("loopback behind NAT64", "64:ff9b::7f00:1", False),
    ("loopback behind 6to4", "2002:7f00:1::1", False),
    ("Teredo", "2001:0:7f00:1::1", False),
    ("a host name", "hooks.example.org", False),
]


@pytest.mark.parametrize(
    ("what", "address", "is_allowed"), ADDRESSES, ids=[r[0] for r in ADDRESSES]
)
def test_only_public_addresses_are_allowed(what: str, address: str, is_allowed: bool) -> None:
    assert PUBLIC.allows_address(address) is is_allowed


@given(st.ip_addresses(v=4))
def test_mapped_address_is_treated_as_ipv4(address: IPv4Address) -> None:
    assert PUBLIC.allows_address(f"::ffff:{address}") == PUBLIC.allows_address(str(address))


@given(st.ip_addresses(v=6))
def test_public_address_is_global_unicast(address: IPv6Address) -> None:
    if is_public(address):
        assert address.is_global
        assert not (address.is_private or address.is_multicast or address.is_link_local)


def test_allowed_targets_restrict_hosts_and_add_networks() -> None:
    targets = AllowedTargets.parse("hooks.example.org, *.internal", "10.1.0.0/16")
    assert targets.allows_address("10.1.2.3")
    assert targets.allows_address("93.184.216.34")
    assert not targets.allows_address("10.2.0.1")
    assert targets.allows_name("HOOKS.example.org")
    assert targets.allows_name("ci.internal")
    assert not targets.allows_name("internal")
    assert not targets.allows_name("example.org")
    assert not targets.allows_name("evilhooks.example.org")
    assert targets.allows_name("10.1.2.3"), "an address in an allowed network needs no allowed host"
    assert not targets.allows_name("93.184.216.34")


@pytest.mark.parametrize(
    ("hosts", "networks"),
    [("https://example.org", ""), ("a b", ""), ("", "10.0.0.0/99"), ("", "example.org"), ("*", "")],
)
def test_invalid_allowed_targets_are_rejected(hosts: str, networks: str) -> None:
    with pytest.raises(ValueError, match="is not a (host name|network)"):
        AllowedTargets.parse(hosts, networks)


URLS = [
    ("another scheme", "ftp://example.org/", "begin with http"),
    ("a file", "file:///etc/passwd", "begin with http"),
    ("no host", "http:///path", "begin with http"),
    ("no scheme", "example.org/hook", "begin with http"),
    ("port 0", "http://example.org:0/", "begin with http"),
    ("a port out of range", "http://example.org:99999/", "not a URL"),
    ("an unclosed bracket", "http://[::1/", "not a URL"),
    ("user name and password", "https://me:word@example.org/", "user name or password"),
    ("an empty user name", "https://@example.org/", "user name or password"),
    ("a fragment", "https://example.org/#x", "fragment"),
    ("a line break", "https://example.org/\r\nHost: other", "printable ASCII"),
    ("a space", "https://example.org/a b", "printable ASCII"),
    ("letters outside ASCII", "https://exämple.org/", "printable ASCII"),
    (
        "a backslash, which parsers interpret differently",
        "https://example.org\\@10.0.0.1/",
        "printable",
    ),
    ("too long", "https://example.org/" + "a" * 2048, "at most 2048"),
    ("loopback", "http://127.0.0.1:8091/", "not public"),
    ("a private address", "https://10.0.0.1/", "not public"),
    ("a cloud metadata service", "http://169.254.169.254/latest/meta-data", "not public"),
    ("IPv6 loopback", "http://[::1]:8091/", "not public"),
    ("a mapped private address", "http://[::ffff:10.0.0.1]/", "not public"),
]


@pytest.mark.parametrize(("what", "url", "why"), URLS, ids=[row[0] for row in URLS])
def test_invalid_callback_url_is_rejected(what: str, url: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as rejected:
        check_url(url, PUBLIC)
    assert rejected.value.details == {"field": "callback_url"}


def test_message_about_a_url_does_not_repeat_its_password() -> None:
    for url in ("https://me:word@example.org/", "https://me:" + "x" * 300 + "@a@example.org/word#"):
        with pytest.raises(InvalidRequest, match="user name or password") as rejected:
            check_url(url, PUBLIC)
        assert "word@" not in rejected.value.message and "xxx" not in rejected.value.message
    with pytest.raises(InvalidRequest) as rejected:
        check_registry_url("https://me:word@registry.example.org")
    assert "word" not in rejected.value.message


def test_valid_callback_url_is_accepted_if_its_host_is_allowed() -> None:
    for url in ("https://hooks.example.org/a?b=c%20d", "http://93.184.216.34:8080/"):
        assert check_url(url, PUBLIC) == url
    assert check_url(None, PUBLIC) is None
    assert check_url("", PUBLIC) is None
    with pytest.raises(InvalidRequest, match="allows callbacks only to hooks.example.org"):
        check_url("https://example.com/", AllowedTargets.parse("hooks.example.org", ""))
    targets = AllowedTargets.parse("hooks.example.org", "10.0.0.0/8")
    with pytest.raises(InvalidRequest, match="only to hooks.example.org, 10.0.0.0/8$"):
        check_url("https://example.com/", targets)
    with pytest.raises(InvalidRequest, match="disabled"):
        check_url("https://example.com/", AllowedTargets.parse("none", ""))


def test_signature_follows_documentation() -> None:
    body = body_of({"status": "RUNNING", "name": "ü"})
    assert body == '{"event":"session.status","name":"ü","status":"RUNNING"}'.encode()
    secret = hmac.new(b"secret-key", b"bai callback secret", hashlib.sha256).hexdigest()
    assert secret_of("secret-key") == secret
    expected = hmac.new(secret.encode(), b"1700000000." + body, hashlib.sha256).hexdigest()
    assert signature(secret, 1_700_000_000, body) == f"v1={expected}"


def test_retry_delays_increase_up_to_a_limit() -> None:
    waits = [retry_delay(tries) for tries in range(1, MAX_ATTEMPTS)]
    assert waits[0] == timedelta(seconds=2)
    assert all(wait is not None and wait <= MAX_DELAY for wait in waits)
    assert waits == sorted(waits, key=lambda wait: wait or timedelta())
    assert retry_delay(MAX_ATTEMPTS) is None
