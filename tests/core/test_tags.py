"""Tags of objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.tags import MAX_TAG, MAX_TAGS, check_tags, joined, separated


@given(st.lists(st.text(max_size=8), max_size=5))
def test_valid_tags_are_stored_and_read_without_a_change(tags: list[str]) -> None:
    try:
        found = check_tags(tags)
    except InvalidRequest as error:
        assert error.details["field"] == "tags"
        return
    assert separated(joined(found)) == found == sorted(set(found))
    assert {tag.strip() for tag in tags} == set(found)


@pytest.mark.parametrize(
    "tags",
    [
        [""],
        ["a,b"],
        ["a" * (MAX_TAG + 1)],
        ["a\u202eb"],
        ["a\nb"],
        list(map(str, range(MAX_TAGS + 1))),
    ],
    ids=["empty", "comma", "long", "direction", "line break", "many"],
)
def test_invalid_tags_are_refused(tags: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        check_tags(tags)
