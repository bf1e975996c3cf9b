"""Commits: states, names and labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.custom_images import (
    OPEN_COMMITS,
    TRANSITIONS,
    CommitEvent,
    CommitRequest,
    CommitStatus,
    check_commit_labels,
    check_custom_name,
    custom_image_name,
    next_commit_status,
)
from bai_services.core.cluster.model import canonical_image
from bai_services.core.cluster.registries import registry_host
from bai_services.core.errors import InvalidRequest, InvalidTransition


def test_every_open_commit_can_end_and_an_ended_one_cannot_change() -> None:
    ends = {CommitEvent.COMPLETED, CommitEvent.BROKEN, CommitEvent.CANCELLED}
    for status in CommitStatus:
        if status in OPEN_COMMITS:
            assert all(TRANSITIONS[status, event] not in OPEN_COMMITS for event in ends)
            continue
        for event in CommitEvent:
            with pytest.raises(InvalidTransition):
                next_commit_status(status, event)


@given(
    st.text(min_size=1, max_size=64),
    st.from_regex(r"[A-Za-z0-9_-]{4,32}", fullmatch=True),
    st.uuids(),
    st.sampled_from(["", "registry.example.org", "127.0.0.1:5000"]),
)
def test_names_of_images_are_valid_for_every_owner(
    owner: str, name: str, custom_id: object, host: str
) -> None:
    image = custom_image_name(host, owner, check_custom_name(name), str(custom_id))
    assert canonical_image(image) == image
    # Without a configured registry, the host must be localhost, so that Docker never queries Docker
    # Hub.
    assert registry_host(image) == (host or "localhost")


@pytest.mark.parametrize("name", ["", "abc", "a" * 33, "a b c d", "name\n", "näme"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_custom_name(name)


@pytest.mark.parametrize(
    "labels, reason",
    [
        pytest.param({"ai.backend.role": "SYSTEM"}, "belong to the platform", id="platform label"),
        pytest.param({"": "x"}, "label '' is not valid", id="empty name"),
        pytest.param({"a": "x" * 5000}, "label 'a' is not valid", id="too long"),
        pytest.param({"a\n": "x"}, "is not valid", id="control character in the name"),
        pytest.param({"a": "\0"}, "label 'a' is not valid", id="NUL in the value"),
        pytest.param({str(n): "" for n in range(33)}, "at most 32 labels", id="too many"),
    ],
)
def test_invalid_labels_are_rejected(labels: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_commit_labels(labels)


VALID_ITEM = {
    "id": "w",
    "session_id": "11111111-1111-1111-1111-111111111111",
    "kernel_id": "22222222-2222-2222-2222-222222222222",
    "image": "i",
}


@pytest.mark.parametrize("field", ["session_id", "kernel_id"])
def test_a_work_item_with_a_path_in_place_of_an_id_is_rejected(field: str) -> None:
    CommitRequest.from_json(VALID_ITEM)
    with pytest.raises(InvalidRequest, match="badly formed"):
        CommitRequest.from_json({**VALID_ITEM, field: "../x"})
