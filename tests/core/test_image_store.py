"""The agents that lack an image, and the images that are evicted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.image_store import (
    MIN_UNUSED_SECONDS,
    AgentImages,
    PruneRequest,
    StoredImage,
    choose_evictions,
    choose_unused,
    digest_state,
    lacks,
)

NOW = 100_000.0
IMAGES = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.none() | st.sampled_from([0.0, 10.0, 20.0, NOW - MIN_UNUSED_SECONDS, NOW - 1]),
        st.booleans(),
        st.sampled_from([(), ("py:1",), ("localhost/custom/py:1",)]),
    ),
    max_size=6,
).map(lambda rows: [StoredImage(f"i{number}", *row) for number, row in enumerate(rows)])


@given(images=IMAGES, others=st.integers(0, 9), limit=st.integers(0, 40))
def test_only_as_many_images_as_needed_are_evicted_the_least_recently_used_first(
    images: list[StoredImage], others: int, limit: int
) -> None:
    used = others + sum(image.size_bytes for image in images)
    # Oracle: evict one image at a time, and search all remaining images for the next one.
    left, evicted, size = list(images), [], used
    while size > limit:
        free = [
            image
            for image in left
            if not image.has_containers
            and image.last_used is not None
            and image.last_used + MIN_UNUSED_SECONDS <= NOW
            and "localhost/custom/py:1" not in image.names
        ]
        if not free:
            break
        oldest = min(free, key=lambda image: (image.last_used or 0, image.id))
        left.remove(oldest)
        evicted.append(oldest.id)
        size -= oldest.size_bytes
    assert list(choose_evictions(images, used, limit, NOW)) == evicted


@pytest.mark.parametrize(
    ("digests", "digest", "expected"),
    [
        pytest.param({}, "", True, id="absent"),
        pytest.param({"py:1": "sha256:a"}, "", False, id="present, any version"),
        pytest.param({"py:1": "sha256:a"}, "sha256:a", False, id="the registered version"),
        pytest.param({"py:1": "sha256:a"}, "sha256:b", True, id="another version"),
        pytest.param({"py:1": ""}, "sha256:b", False, id="built on the machine"),
    ],
)
def test_agent_lacks_an_image_that_is_absent_or_has_another_digest(
    digests: dict[str, str], digest: str, expected: bool
) -> None:
    def agent(engine: str, architecture: str) -> AgentImages:
        return AgentImages("a", "g", engine, architecture, "ALIVE", digests)

    assert lacks(agent("docker", "x86_64"), "py:1", "x86_64", digest) is expected
    assert not lacks(agent("process", "x86_64"), "py:1", "x86_64", digest)
    assert not lacks(agent("docker", "aarch64"), "py:1", "x86_64", digest)


@pytest.mark.parametrize(
    ("registered", "on_agent", "expected"),
    [("a", "a", True), ("a", "b", False), ("", "a", None), ("a", "", None)],
)
def test_digest_is_current_only_if_both_digests_are_known_and_equal(
    registered: str, on_agent: str, expected: bool | None
) -> None:
    assert digest_state(registered, on_agent) is expected


PRUNABLE = st.lists(
    st.builds(
        StoredImage,
        st.uuids().map(str),
        st.integers(0, 9),
        st.none() | st.floats(0, NOW, allow_nan=False),
        st.booleans(),
        st.lists(st.sampled_from(["a", "b", "c", "localhost/d"]), max_size=2),
        st.booleans(),
    ),
    max_size=6,
)


@given(
    images=PRUNABLE,
    seconds=st.sampled_from([0, MIN_UNUSED_SECONDS, 50_000]),
    keep=st.frozensets(st.sampled_from(["a", "b"])),
)
def test_images_in_use_pinned_or_in_no_registry_are_never_removed(
    images: list[StoredImage], seconds: int, keep: frozenset[str]
) -> None:
    chosen = choose_unused(images, PruneRequest("p", seconds, keep, is_dry_run=False), NOW)
    times = [image.last_used for image in chosen]
    assert times == sorted(times)
    for image in images:
        is_unused = image.last_used is not None and NOW - image.last_used >= max(
            seconds, MIN_UNUSED_SECONDS
        )
        is_kept = (
            image.has_containers
            or not image.is_pulled
            or "localhost/d" in image.names
            or bool(keep & set(image.names))
        )
        assert (image in chosen) == (is_unused and not is_kept)
