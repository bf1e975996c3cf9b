"""Installation of a Python distribution with entry points for one test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    place: Path,
    module: str,
    source: str,
    entry_points: Mapping[str, Mapping[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Install in ``place`` a distribution that consists of one module.

    ``entry_points`` maps each group to a mapping from names to objects (``module:object``).
    """
    facts = place / f"{module}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {what}" for name, what in points.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (place / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(place))
