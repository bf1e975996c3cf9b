"""Malformed YAML files, and files designed to exhaust time or memory, are rejected quickly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from bai_services.cli.admin import declaration
from bai_services.core.bounded_yaml import load_yaml
from bai_services.core.errors import InvalidRequest

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    "text, part",
    [
        pytest.param(LAUGHS, "more than 1000000 values", id="aliases of aliases"),
        pytest.param(MERGES, "more than 1000000 values", id="merges of merges"),
        pytest.param("a: &a [*a]", "inside its own anchor", id="list that contains itself"),
        pytest.param("[" * 5000, "more than 64 levels", id="deep nesting"),
        pytest.param("a: 1" + "0" * 5000, "more than 40 characters", id="long integer"),
        pytest.param("a: 1" + ":1" * 50_000, "more than 40 characters", id="base 60 integer"),
        pytest.param("a: 2026-13-01", "cannot be read", id="invalid month"),
        pytest.param("a: \x01", "not allowed", id="control character"),
        pytest.param('users: !!bool "abc"', "not a valid bool", id="invalid boolean"),
        pytest.param(
            "users:\n- username: !!bool abc\n", "not a valid bool", id="invalid nested boolean"
        ),
        pytest.param('a: !!int ""', "not a valid int", id="empty integer"),
        pytest.param("a: !!timestamp x", "not a valid timestamp", id="invalid timestamp"),
        pytest.param('a: "\\UFFFFFFFF"', "not a character", id="largest 32-bit code point"),
        pytest.param('a: "\\U00110000"', "not a character", id="first code point above Unicode"),
    ],
)
def test_hostile_yaml_is_rejected_within_5_seconds(tmp_path: Path, text: str, part: str) -> None:
    start = time.process_time()
    with pytest.raises(yaml.YAMLError, match=part):
        load_yaml(text)
    file = tmp_path / "hostile.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest):
        declaration.load_declaration(file)
    assert time.process_time() - start < 5


def test_anchors_and_merges_are_supported() -> None:
    text = "base: &base {cpu: '1'}\none: {<<: *base, mem: 1g}\ntwo: *base\n"
    assert load_yaml(text)["one"] == {"cpu": "1", "mem": "1g"}
    assert load_yaml('{"sessions": [1, 2.5, null, true]}') == {"sessions": [1, 2.5, None, True]}
