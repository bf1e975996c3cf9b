"""docs/traits.md documents the traits of the spawner and its engines, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from traitlets import HasTraits

from bai_services.engines.docker import DockerEngine
from bai_services.engines.process import ProcessEngine
from bai_spawner.server import SessionServer

DOCS = Path(__file__).resolve().parents[2] / "docs" / "traits.md"
INHERITED = {"stop_grace_seconds"}


@pytest.mark.parametrize(
    ("cls", "title", "inherited"),
    [
        (SessionServer, "BaiSpawner", set()),
        (ProcessEngine, "ProcessEngine", INHERITED),
        (DockerEngine, "DockerEngine", INHERITED),
    ],
)
def test_every_trait_is_documented(cls: type[HasTraits], title: str, inherited: set[str]) -> None:
    part = DOCS.read_text().split(f"## `{title}`")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)`", part, re.M))
    traits = {name for name in cls.class_own_traits(config=True)}
    assert documented == traits | inherited
