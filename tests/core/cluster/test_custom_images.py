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
    # Without a registry, no public registry is asked for the image.
    assert registry_host(image) == (host or "localhost")


@pytest.mark.parametrize("name", ["", "abc", "a" * 33, "a b c d", "name\n", "näme"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_custom_name(name)


@pytest.mark.parametrize(
    "labels",
    [
        {"ai.backend.role": "SYSTEM"},
        {"": "x"},
        {"a": "x" * 5000},
        {"a\n": "x"},
        {"a": "\0"},
        {str(number): "" for number in range(33)},
    ],
)
def test_invalid_labels_are_rejected(labels: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        check_commit_labels(labels)


def test_a_work_item_with_a_path_in_place_of_an_id_is_rejected() -> None:
    item = {"id": "w", "session_id": "../x", "kernel_id": "k", "image": "i"}
    with pytest.raises(InvalidRequest):
        CommitRequest.from_json(item)
