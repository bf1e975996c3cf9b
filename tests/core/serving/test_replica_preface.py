"""The header before HTTP/2, which authenticates a gateway to a replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.replica_preface import (
    REST_BYTES,
    START,
    length_after,
    preface,
    secret_of,
)

SECRET = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=128)


def read(header: bytes) -> bytes:
    assert header.startswith(START)
    rest, more = header[4 : 4 + REST_BYTES], header[4 + REST_BYTES :]
    assert length_after(rest) == len(more)
    return secret_of(rest, more)


@given(SECRET)
def test_secret_is_read_back(secret: str) -> None:
    assert read(preface(secret)) == secret.encode()


@given(SECRET, st.sampled_from([(0x11, 12), (0x21, 36), (0x31, 216)]))
def test_addresses_and_other_entries_precede_the_secret(
    secret: str, family: tuple[int, int]
) -> None:
    plain = preface(secret)
    before = bytes(family[1]) + b"\x03\0\4abcd"
    size = (len(plain) - 16 + len(before)).to_bytes(2, "big")
    header = plain[:12] + bytes([0x21, family[0]]) + size + before + plain[16:]
    assert read(header) == secret.encode()


@given(st.binary(max_size=40), st.integers(0, 255))
def test_arbitrary_bytes_contain_no_secret(more: bytes, family: int) -> None:
    rest = preface("")[4:13] + bytes([family]) + len(more).to_bytes(2, "big")
    assert length_after(rest) == len(more)
    assert len(secret_of(rest, more)) <= len(more)


@pytest.mark.parametrize("secret", ["x" * 1022, "x" * 60_000])
def test_long_header_is_refused(secret: str) -> None:
    with pytest.raises(ValueError):
        read(preface(secret))


def test_bytes_that_are_no_preface_are_refused() -> None:
    with pytest.raises(ValueError):
        length_after(b"GET / HTTP/1")
