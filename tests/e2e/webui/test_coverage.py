"""The checklist of the UI agrees with the tests."""

from __future__ import annotations

from .coverage import errors, names_by_item, states


def test_every_built_item_has_a_test() -> None:
    assert errors(states(), names_by_item()) == []


def test_mismatches_between_checklist_and_tests_are_reported() -> None:
    found = errors({"SES-01": "built", "SES-02": "missing"}, {"SES-02": ["a::b"]})
    assert len(found) == 2
    assert "SES-01 is built" in found[0]
    assert "SES-02, whose state is 'missing'" in found[1]
