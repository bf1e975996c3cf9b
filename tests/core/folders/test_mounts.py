"""Mount paths and subpaths of folders in a session, and overlapping mounts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.mounts import (
    HOME,
    MAX_SUBPATH,
    SYSTEM_DIRECTORIES,
    check_no_overlap,
    check_subpath,
    mount_path,
)


@pytest.mark.parametrize(
    "asked, path",
    [
        pytest.param("", "/home/work/data", id="default path"),
        pytest.param("in/put", "/home/work/in/put", id="relative path is below home"),
        pytest.param("/home/work/data", "/home/work/data", id="absolute path below home"),
        pytest.param("/home//work/./a/", "/home/work/a", id="not normalized"),
        pytest.param("_x", "/home/work/_x", id="leading underscore"),
        pytest.param("/data/sets", "/data/sets", id="absolute path outside of home"),
        pytest.param("/home/worker/a", "/home/worker/a", id="another user's home"),
        pytest.param("etc", "/home/work/etc", id="name of a system directory, below home"),
    ],
)
def test_valid_path_is_normalized(asked: str, path: str) -> None:
    assert mount_path("data", asked) == path


@pytest.mark.parametrize(
    "asked, reason",
    [
        pytest.param("/", "system directories", id="root directory"),
        pytest.param("/etc", "system directories", id="system directory"),
        pytest.param("/usr/local/lib", "system directories", id="below a system directory"),
        pytest.param("//etc", "system directories", id="system directory, not normalized"),
        pytest.param("/home", "the session's home", id="parent of home"),
        pytest.param("/home/x", "the session's home", id="beside home"),
        pytest.param("/home/work", "the session's home", id="home"),
        pytest.param("/home/work/", "the session's home", id="home with a trailing slash"),
        pytest.param(".", "the session's home", id="dot"),
        pytest.param("../x", "'..'", id="parent directory"),
        pytest.param("a/../../x", "'..'", id="parent directory inside the path"),
        pytest.param("/home/work/../x", "'..'", id="parent directory of home"),
        pytest.param(".ssh", "the session itself creates", id="reserved name"),
        pytest.param(
            "/home/work/.jupyter/lab", "the session itself creates", id="below a reserved directory"
        ),
        pytest.param(".zshrc", "the session itself creates", id="name with a reserved pattern"),
        pytest.param("a:b", "letters of", id="colon, which separates engine arguments"),
        pytest.param("a,b", "letters of", id="comma, which separates engine arguments"),
        pytest.param("a b", "letters of", id="space"),
        pytest.param("a\0b", "letters of", id="NUL"),
        pytest.param("-a", "must not begin with -", id="looks like an option"),
        pytest.param("x" * 65, "1 to 64", id="component too long"),
        pytest.param("/".join(["x" * 60] * 5), "255", id="path too long"),
    ],
)
def test_invalid_path_is_rejected_with_the_reason(asked: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(reason)):
        mount_path("data", asked)


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(["..", ".", "", "a", "home", "work", "etc", "usr"])).map("/".join)
)
def test_accepted_paths_never_cover_system_directories(asked: str) -> None:
    try:
        path = mount_path("data", asked)
    except InvalidRequest:
        return
    assert re.fullmatch(r"(/[A-Za-z0-9._][A-Za-z0-9._-]*)+", path)
    assert not {"..", "."} & set(path.split("/"))
    assert path.split("/")[1] not in SYSTEM_DIRECTORIES
    assert not HOME.startswith(path)


def test_linuxbrew_has_a_fixed_path() -> None:
    assert mount_path(".linuxbrew", "") == "/home/linuxbrew/.linuxbrew"


@pytest.mark.parametrize(
    "paths, text",
    [
        pytest.param(["a", "a"], "would both be mounted at /home/work/a", id="same path"),
        pytest.param(["a", "a/b"], "would be inside folder f0", id="second inside the first"),
        pytest.param(["a/b/c", "a"], "would be inside folder f1", id="first inside the second"),
    ],
)
def test_overlapping_mounts_are_rejected(paths: list[str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_no_overlap((f"{HOME}/{path}", f"f{i}") for i, path in enumerate(paths))


def test_adjacent_mounts_are_accepted() -> None:
    check_no_overlap((f"{HOME}/{path}", path) for path in ("a", "ab", "b/a", "b/ab"))


@pytest.mark.parametrize(
    "asked, kept",
    [
        pytest.param("", "", id="the whole folder"),
        pytest.param(".", "", id="the whole folder as a dot"),
        pytest.param("raw/2024", "raw/2024", id="subdirectory"),
        pytest.param("raw//./2024/", "raw/2024", id="not normalized"),
        pytest.param("사진 1/ü", "사진 1/ü", id="non-ASCII letters"),
        pytest.param("..x/...", "..x/...", id="dots inside a name"),
    ],
)
def test_valid_subpath_is_normalized(asked: str, kept: str) -> None:
    assert check_subpath(asked) == kept


@pytest.mark.parametrize(
    "asked, reason",
    [
        pytest.param("/etc", "relative to the folder", id="absolute path"),
        pytest.param("..", "'..'", id="parent directory"),
        pytest.param("a/../..", "'..'", id="parent directory inside the path"),
        pytest.param("a\0b", "control characters", id="NUL"),
        pytest.param("a\nb", "control characters", id="line break"),
        pytest.param("x" * 256, "a name of more than 255", id="component too long"),
        pytest.param("x/" * MAX_SUBPATH, "1000 characters", id="path too long"),
    ],
)
def test_invalid_subpath_is_rejected(asked: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(reason)):
        check_subpath(asked)
