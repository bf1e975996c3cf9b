"""`bai apply` of resource groups: what has been applied is no difference, however it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Bai

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
PEOPLE = """\
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


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def apply(bai: Bai, file: Path, text: str) -> list[str]:
    """Apply a file and return what two dry runs after it still want to change."""
    write(file, text)
    done = await bai("apply", "-f", file)
    assert (done.code, done.stderr) == (0, "")
    left = []
    for _ in range(2):
        dry = await bai("apply", "-f", file, "--dry-run")
        assert dry.code == 0
        left.append(dry.stdout)
    return left


@pytest.mark.parametrize(
    "option",
    [
        "placement: spread",
        "backfill: aggressive",
        pytest.param("backfill: off", id="a word that YAML takes for false"),
        "strategy: FILL",
        "allow_fractional_resource_fragmentation: true",
        "minimum_enforcement: process",
        pytest.param("minimum_enforcement: none", id="the level that demands nothing"),
        pytest.param("pending_timeout: 2h", id="a span of time as text"),
        pytest.param("pending_timeout: 90", id="a span of time in seconds"),
        pytest.param("pending_timeout: null", id="no span of time"),
        "fair_share: {half_life_days: 7, lookback_days: 28, default_weight: 1}",
        "fair_share: {resource_weights: {cpu: 1, cuda.shares: 2.5}}",
        pytest.param("fair_share: {weights: {domain: {research: 2}}}", id="a domain's weight"),
        pytest.param(
            "fair_share: {weights: {project: {research/vision: 3}}}", id="a project's weight"
        ),
        pytest.param(
            "fair_share: {weights: {project: {vision: 3}}}", id="a project named by itself"
        ),
        pytest.param("fair_share: {weights: {user: {USER: 4}}}", id="a person in capitals"),
        pytest.param("fair_share: {weights: {user: {2024: 4}}}", id="a name that is a number"),
        pytest.param("fair_share: {weights: {}}", id="no weights"),
    ],
)
async def test_what_was_applied_is_no_difference(bai: Bai, tmp_path: Path, option: str) -> None:
    text = f"{GROUP}      {option}\n{PEOPLE}"
    assert await apply(bai, tmp_path / "hub.yaml", text) == ["nothing to change\n"] * 2


async def test_an_id_means_the_same_as_a_name(bai: Bai, tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    weights = "      fair_share: {{weights: {{user: {{{}: 4}}}}}}\n"
    user_id = (await bai("admin", "user", "show", "user", "--json")).document["id"]
    for key in ("user", user_id):
        assert await apply(bai, file, GROUP + weights.format(key)) == ["nothing to change\n"] * 2


async def test_another_weight_is_shown_with_names(bai: Bai, tmp_path: Path) -> None:
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
