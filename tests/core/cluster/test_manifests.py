"""Responses of the distribution protocol."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.manifests import (
    Challenge,
    Manifest,
    Platform,
    parse_challenge,
    parse_config,
    parse_manifest,
    parse_repositories,
    parse_tags,
    parse_token,
)

DIGEST = "sha256:" + "a" * 64


def test_size_of_a_manifest_is_that_of_its_config_and_layers() -> None:
    document = {"config": {"digest": DIGEST, "size": 3}, "layers": [{"size": 4}, {"size": 5}]}
    assert parse_manifest(document) == Manifest(DIGEST, 12)


def test_platforms_of_an_index_exclude_attestations_and_other_systems() -> None:
    def entry(architecture: str, system: str = "linux") -> dict[str, Any]:
        return {"digest": DIGEST, "platform": {"architecture": architecture, "os": system}}

    entries = [
        entry("amd64"),
        entry("arm64"),
        entry("arm64"),
        entry("unknown", "unknown"),
        entry("amd64", "windows"),
    ]
    found = parse_manifest({"manifests": entries})
    assert found == [Platform(DIGEST, "x86_64"), Platform(DIGEST, "aarch64")]


def test_invalid_and_excessive_labels_of_a_config_are_dropped() -> None:
    labels = {"ai.backend.role": "COMPUTE", "other": "x", "number": 3, "nul": "\0"}
    found = parse_config({"architecture": "arm64", "config": {"Labels": labels}})
    assert found.architecture == "aarch64"
    assert found.labels == {"ai.backend.role": "COMPUTE", "other": "x"}
    many = {f"label{number}": "" for number in range(300)} | {"ai.backend.role": "COMPUTE"}
    found = parse_config({"architecture": "amd64", "config": {"Labels": many}})
    assert found.labels == {"ai.backend.role": "COMPUTE"}


def test_basic_and_bearer_challenges_are_parsed_and_others_rejected() -> None:
    header = 'Bearer realm="https://auth.example.org/token",service="r",scope="a"'
    assert parse_challenge(header) == Challenge("bearer", "https://auth.example.org/token", "r")
    assert parse_challenge('Basic realm="x"') == Challenge("basic")
    for text in ("", "Digest x", "Bearer service=x"):
        with pytest.raises(ValueError):
            parse_challenge(text)


@pytest.mark.parametrize("token", [None, "", "a\r\nHost: b", "ü", 3, "x" * 20_000])
def test_invalid_tokens_are_rejected(token: object) -> None:
    with pytest.raises(ValueError):
        parse_token({"token": token})
    assert parse_token({"access_token": "t", "expires_in": 10**9}) == ("t", 3600)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "manifests",
                    "platform",
                    "os",
                    "architecture",
                    "digest",
                    "size",
                    "config",
                    "layers",
                    "Labels",
                    "tags",
                    "repositories",
                    "token",
                    "expires_in",
                ]
            ),
            values,
            max_size=5,
        )
    ),
)


@pytest.mark.parametrize(
    "parse", [parse_manifest, parse_config, parse_tags, parse_repositories, parse_token]
)
@given(document=JSON)
def test_any_document_is_parsed_or_rejected_with_a_reason(parse: Any, document: Any) -> None:
    try:
        parse(document)
    except ValueError as error:
        assert str(error)
