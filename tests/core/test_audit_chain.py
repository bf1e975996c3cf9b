"""Changed values of audit entries, and the hash chain over the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.audit import LoggedEntry, changed_values, shortened
from bai_services.core.audit_chain import ChainState, Damage, check, check_end, link
from bai_services.core.resources import Caps

START = datetime(2026, 11, 26, tzinfo=UTC)


def chain(count: int) -> tuple[ChainState, list[LoggedEntry]]:
    entries = [
        LoggedEntry(
            at=START + timedelta(seconds=number),
            actor="ann",
            action="session.stop",
            entity="session",
            entity_id=f"s{number}",
            details={"b": 1.5, "a": ["ü", None]},
            id=number + 10,
            entity_name="x",
        )
        for number in range(count)
    ]
    links = link(ChainState(), entries)
    chained = [
        replace(entry, position=its.position, hash=its.hash)
        for entry, its in zip(entries, links, strict=True)
    ]
    return ChainState(head_position=count, head_hash=links[-1].hash), chained


def damage(state: ChainState, entries: list[LoggedEntry]) -> tuple[Damage, int] | None:
    problem = check(state.anchor_position, state.anchor_hash, entries)
    if problem is None:
        last = entries[-1] if entries else None
        position = state.anchor_position if last is None else last.position or 0
        its_hash = state.anchor_hash if last is None else last.hash or ""
        problem = check_end(state, position, its_hash)
    return None if problem is None else (problem.kind, problem.position)


FIELDS = st.sampled_from(
    [
        ("at", START - timedelta(days=1)),
        ("actor", "eve"),
        ("actor_id", "e"),
        ("on_behalf_of", "eve"),
        ("client_ip", "10.0.0.1"),
        ("action", "session.read"),
        ("entity", "user"),
        ("entity_id", "other"),
        ("owner_id", "e"),
        ("domain", "d"),
        ("outcome", "forbidden"),
        ("details", {}),
        ("id", 3),
        ("hash", "0" * 64),
    ]
)


@given(st.integers(1, 6), st.data())
def test_first_damage_is_found(count: int, data: st.DataObject) -> None:
    state, entries = chain(count)
    assert damage(state, entries) is None
    index = data.draw(st.integers(0, count - 1))
    name, value = data.draw(FIELDS)
    altered = [*entries]
    altered[index] = replace(entries[index], **{name: value})
    assert damage(state, altered) == (Damage.ALTERED, index + 1)
    removed = entries[:index] + entries[index + 1 :]
    assert damage(state, removed) == (Damage.REMOVED, index + 1)
    # The attacker also renumbers the entries after the removed one.
    shifted = [replace(e, position=number + 1) for number, e in enumerate(removed)]
    assert (damage(state, shifted) or (None, 0))[1] == index + 1
    inserted = [*entries[:index], replace(entries[index], id=99), *entries[index:]]
    shifted = [replace(e, position=number + 1) for number, e in enumerate(inserted)]
    assert damage(state, shifted) == (Damage.ALTERED, index + 1)


@given(st.integers(1, 6), st.data())
def test_chain_in_parts_equals_the_chain_at_once(count: int, data: st.DataObject) -> None:
    state, entries = chain(count)
    cut = data.draw(st.integers(0, count))
    first = link(ChainState(), entries[:cut])
    middle = ChainState(
        head_position=cut, head_hash=first[-1].hash if first else ChainState().head_hash
    )
    rest = link(middle, entries[cut:])
    assert [each.hash for each in [*first, *rest]] == [entry.hash for entry in entries]
    # Old entries are removed; the anchor has the position and the hash of the last removed entry.
    anchor = replace(state, anchor_position=cut, anchor_hash=middle.head_hash)
    assert damage(anchor, entries[cut:]) is None


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param(
            {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4}, {"b": {"before": 2, "after": 4}},
            id="only changed values",
        ),
        pytest.param(
            {"caps": Caps({"cpu": 1000})}, {"caps": Caps()},
            {"caps": {"before": {"cpu": 1000}, "after": {}}}, id="limits as maps",
        ),
        pytest.param({"password": "old"}, {"password": "new"}, {"password": {}}, id="no secrets"),
        pytest.param(
            {"t": None}, {"t": START}, {"t": {"before": None, "after": START.isoformat()}},
            id="times as text",
        ),
    ],
)  # fmt: skip
def test_changed_values_are_returned_without_secrets(before: Any, after: Any, changes: Any) -> None:
    assert changed_values(before, after) == {"fields": sorted(after), "changes": changes}


def test_changed_values_are_bounded() -> None:
    assert len(shortened("x" * 1000)) == 300
    many = {f"f{number}": number for number in range(200)}
    assert len(changed_values({}, many)["changes"]) == 50
