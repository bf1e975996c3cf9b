"""Public SSH keys and their names: accepted and rejected texts."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.accounts.ssh_keys import check_key_name, parse_public_key
from bai_services.core.errors import InvalidRequest

# Created with ssh-keygen for this test; the fingerprint is the output of `ssh-keygen -l`.
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPuZoJmTaJ+YzUdcVG4BfQ412EDj7Q8aP678ktJSkQ+/"
FINGERPRINT = "SHA256:tFQ3wa52PnX7mMSBlY180UlmejgCjWCtQN0JmdHZYRk"


def encode_fields(*fields: bytes) -> str:
    blob = b"".join(struct.pack("!I", len(field)) + field for field in fields)
    return base64.b64encode(blob).decode()


@pytest.mark.parametrize("line", [ED25519, f"  {ED25519} me@home\n", f"{ED25519} a b c"])
def test_public_key_is_parsed_without_its_comment(line: str) -> None:
    key = parse_public_key(line)
    assert key.text == ED25519
    assert key.fingerprint == FINGERPRINT


WRONG = {
    "empty": "",
    "a type alone": "ssh-ed25519",
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----",
    "options in front": f'command="sh" {ED25519}',
    "two lines": f"{ED25519}\n{ED25519}",
    "unsupported type": "ssh-dss " + encode_fields(b"ssh-dss", b"x"),
    "type that differs from the key": "ssh-rsa " + ED25519.split()[1],
    "cut off": ED25519[:-9],
    "not base64": "ssh-ed25519 !!!!",
    "a weak RSA key": "ssh-rsa " + encode_fields(b"ssh-rsa", b"\1\0\1", b"\xff" * 128),
    "too long": ED25519 + " " + "x" * 9000,
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_invalid_key_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_public_key(text)


def test_rsa_key_of_2048_bits_is_accepted() -> None:
    text = "ssh-rsa " + encode_fields(b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 256)
    assert parse_public_key(text).text == text


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        key = parse_public_key(text)
    except InvalidRequest:
        return
    assert "\n" not in key.text


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a/b", "x" * 65, "ü"])
def test_invalid_key_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_key_name(name)


@pytest.mark.parametrize("name", ["a", "bai-host.local", "me@home", "x" * 64])
def test_valid_key_name_is_unchanged(name: str) -> None:
    assert check_key_name(name) == name
