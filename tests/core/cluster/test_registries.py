"""Image registries: URLs, patterns, names of images, states of a scan."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.registries import (
    OPEN_SCANS,
    TRANSITIONS,
    RegistryKind,
    ScanEvent,
    ScanStatus,
    api_url,
    check_patterns,
    check_registry_url,
    check_repositories,
    image_name,
    matches,
    next_scan_status,
    registry_host,
    repository_and_tag,
    repository_may_match,
)
from bai_services.core.errors import InvalidRequest, InvalidTransition


def test_every_open_scan_can_be_cancelled_and_every_ended_one_repeated() -> None:
    for status in ScanStatus:
        event = ScanEvent.CANCELLED if status in OPEN_SCANS else ScanEvent.REQUESTED
        assert (status, event) in TRANSITIONS
    with pytest.raises(InvalidTransition, match="running cannot be requested"):
        next_scan_status(ScanStatus.RUNNING, ScanEvent.REQUESTED)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        pytest.param("https://Registry.Example.org/", "registry.example.org", id="normalized"),
        pytest.param("http://10.0.0.1:5000", "10.0.0.1:5000", id="address and port"),
        pytest.param("https://registry-1.docker.io", "docker.io", id="Docker Hub"),
    ],
)
def test_host_is_read_from_the_url_of_a_registry(url: str, host: str) -> None:
    assert check_registry_url(url)[1] == host


@pytest.mark.parametrize(
    "url",
    [
        "registry.example.org",
        "ftp://a.org",
        "https://a.org/v2",
        "https://u:p@a.org",
        "https://a.org?x",
        "https://a.org:0",
        "https://a.org:70000",
        "https://a b.org",
        "https://" + "a" * 300,
        "",
    ],
)
def test_invalid_url_of_a_registry_is_rejected(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_registry_url(url)
    assert caught.value.details["field"] == "url"


def test_docker_hub_images_have_the_names_that_docker_lists() -> None:
    assert api_url("https://docker.io") == "https://registry-1.docker.io"
    assert image_name("docker.io", "library/python", "3.12") == "python:3.12"
    assert image_name("docker.io", "jupyter/base", "1") == "jupyter/base:1"


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("python:3.12", "docker.io"),
        ("team/python:3.12", "docker.io"),
        ("docker.io/library/python:3", "docker.io"),
        ("localhost/python:1", "localhost"),
        ("127.0.0.1:5000/team/py:1", "127.0.0.1:5000"),
        ("nvcr.io/nvidia/pytorch:24.01", "nvcr.io"),
    ],
)
def test_registry_host_is_read_from_the_name_of_an_image(image: str, host: str) -> None:
    assert registry_host(image) == host


def test_kinds_without_a_catalog_need_repositories() -> None:
    assert check_repositories([], RegistryKind.HARBOR) == []
    with pytest.raises(InvalidRequest, match="name them"):
        check_repositories([], RegistryKind.NGC)
    with pytest.raises(InvalidRequest, match="not a repository"):
        check_repositories(["../etc"], RegistryKind.DOCKER)


def test_patterns_are_completed_and_match_repository_and_tag() -> None:
    assert check_patterns(["team/*", "team/*:*", "py:3.*"]) == ["team/*:*", "py:3.*"]
    for pattern in ("", "a b", "a\n", "x" * 300):
        with pytest.raises(InvalidRequest):
            check_patterns([pattern])
    assert matches("team/py", "3.12", ["team/*:3.*"])
    assert not matches("team/py", "2.7", ["team/*:3.*"])


NAMES = st.text("ab/", min_size=1, max_size=6)
PATTERNS = st.text("ab/*?[]:", min_size=1, max_size=8)


@given(NAMES, st.text("ab", min_size=1, max_size=3), st.lists(PATTERNS, max_size=3))
def test_no_repository_with_a_matching_tag_is_left_out(
    repository: str, tag: str, patterns: list[str]
) -> None:
    checked = check_patterns(patterns)
    expected = not checked or any(fnmatch.fnmatchcase(f"{repository}:{tag}", p) for p in checked)
    assert matches(repository, tag, checked) is expected
    if expected:
        assert repository_may_match(repository, checked)


REPOSITORIES = st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9]{1,8}){0,2}", fullmatch=True)


@given(
    st.sampled_from(["docker.io", "ghcr.io", "127.0.0.1:5000"]),
    REPOSITORIES,
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True),
)
def test_the_name_of_an_image_contains_repository_and_tag(
    host: str, repository: str, tag: str
) -> None:
    if host == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    name = image_name(host, repository, tag)
    assert repository_and_tag(host, name) == (repository, tag)
