"""YAML files that are made to exhaust time or memory are refused at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from bai_services.cli.admin import declaration
from bai_services.cli.admin.bounded_yaml import load_yaml
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
        pytest.param("a: &a [*a]", "inside of the value", id="a list in itself"),
        pytest.param("[" * 5000, "more than 64 levels", id="deeply nested"),
        pytest.param("a: 1" + "0" * 5000, "more than 40 characters", id="a long integer"),
        pytest.param("a: 1" + ":1" * 50_000, "more than 40 characters", id="base sixty"),
        pytest.param("a: 2026-13-01", "cannot be read", id="a month that does not exist"),
        pytest.param("a: \x01", "not allowed", id="a control character"),
    ],
)
def test_hostile_yaml_is_refused_at_once(tmp_path: Path, text: str, part: str) -> None:
    begun = time.process_time()
    with pytest.raises(yaml.YAMLError, match=part):
        load_yaml(text)
    file = tmp_path / "hostile.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest):
        declaration.read(file)
    assert time.process_time() - begun < 5


def test_anchors_and_merges_still_work() -> None:
    text = "base: &base {cpu: '1'}\none: {<<: *base, mem: 1g}\ntwo: *base\n"
    assert load_yaml(text)["one"] == {"cpu": "1", "mem": "1g"}
    assert load_yaml('{"sessions": [1, 2.5, null, true]}') == {"sessions": [1, 2.5, None, True]}
