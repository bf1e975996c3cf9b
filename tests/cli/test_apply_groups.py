"""`bai apply` of resource groups: repeated runs change nothing; weights are shown by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Bai
from .test_apply import write

GROUP = """\
resource_groups:
  - name: gpu
    description: GPUs
    is_public: true
    engine: docker
    scheduler: fair-share
    allowed_session_types: [batch, interactive]
    total_resource_slots: {cpu: 8, mem: 2048m}
    max_concurrent_sessions: 5
    scheduler_opts:
"""
OTHER_SECTIONS = """\
domains:
  - name: research
projects:
  - name: vision
    domain: research
users:
  - username: "2024"
    email: y2024@example.org
    domain: research
    generate_password: true
"""


async def apply(bai: Bai, file: Path, text: str) -> list[str]:
    """Write ``text`` to a file and apply the file; return the outputs of two dry runs."""
    write(file, text)
    done = await bai("apply", "-f", file)
    assert (done.code, done.stderr) == (0, "")
    outputs = []
    for _ in range(2):
        dry = await bai("apply", "-f", file, "--dry-run")
        assert dry.code == 0
        outputs.append(dry.stdout)
    return outputs


@pytest.mark.parametrize(
    "option",
    [
        "placement: spread",
        "backfill: aggressive",
        pytest.param("backfill: off", id="backfill off, which YAML reads as false"),
        "strategy: FILL",
        "allow_fractional_resource_fragmentation: true",
        "minimum_enforcement: process",
        pytest.param("minimum_enforcement: none", id="no minimum enforcement"),
        pytest.param("pending_timeout: 2h", id="timeout with unit"),
        pytest.param("pending_timeout: 90", id="timeout in seconds"),
        pytest.param("pending_timeout: null", id="no timeout"),
        "fair_share: {half_life_days: 7, lookback_days: 28, default_weight: 1}",
        "fair_share: {resource_weights: {cpu: 1, cuda.shares: 2.5}}",
        pytest.param("fair_share: {weights: {domain: {research: 2}}}", id="weight of a domain"),
        pytest.param(
            "fair_share: {weights: {project: {research/vision: 3}}}", id="weight of a project"
        ),
        pytest.param(
            "fair_share: {weights: {project: {vision: 3}}}",
            id="weight of a project, without its domain",
        ),
        pytest.param(
            "fair_share: {weights: {user: {USER: 4}}}", id="weight of a user name in capitals"
        ),
        pytest.param(
            "fair_share: {weights: {user: {2024: 4}}}", id="weight of a numeric user name"
        ),
        pytest.param("fair_share: {weights: {}}", id="no weights"),
    ],
)
async def test_second_run_finds_no_difference(bai: Bai, tmp_path: Path, option: str) -> None:
    text = f"{GROUP}      {option}\n{OTHER_SECTIONS}"
    assert await apply(bai, tmp_path / "hub.yaml", text) == ["nothing to change\n"] * 2


async def test_weight_by_id_equals_weight_by_name(bai: Bai, tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    weights = "      fair_share: {{weights: {{user: {{{}: 4}}}}}}\n"
    user_id = (await bai("admin", "user", "show", "user", "--json")).document["id"]
    for key in ("user", user_id):
        assert await apply(bai, file, GROUP + weights.format(key)) == ["nothing to change\n"] * 2


async def test_changed_weight_is_shown_with_names(bai: Bai, tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    weights = "      fair_share: {{weights: {{user: {{user: {}}}}}}}\n"
    await apply(bai, file, GROUP + weights.format(4))
    write(file, GROUP + weights.format(5))
    dry = await bai("apply", "-f", file, "--dry-run", "--json")
    assert dry.document["changes"] == [
        {
            "action": "update",
            "kind": "group",
            "name": "gpu",
            "fields": {
                "scheduler_opts": {
                    "from": {"fair_share": {"weights": {"user": {"user": 4}}}},
                    "to": {"fair_share": {"weights": {"user": {"user": 5}}}},
                }
            },
        }
    ]
