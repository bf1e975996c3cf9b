"""Facts of images without the platform's parts."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.image_probe import (
    BUSYBOX_SHELL,
    MAX_ACCOUNTS,
    MAX_PROBE_BYTES,
    ProbedImage,
    account_files,
    cuda_requirement,
    derived_labels,
    needs_parts,
    notices_of,
    parse_environ,
    parse_probe,
    session_environ,
)

DEBIAN = {
    "python": "/usr/bin/python3",
    "python_version": "3.11.2",
    "libc": "glibc",
    "has_ipykernel": False,
    "has_jupyterlab": False,
    "shell": "/bin/bash",
    "passwd": ["root:x:0:0:root:/root:/bin/bash", "ubuntu:x:1000:1000::/home/ubuntu:/bin/sh"],
    "group": ["root:x:0:", "ubuntu:x:1000:"],
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner),
    max_leaves=20,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(DEBIAN, VALUES)) | VALUES)
def test_forged_facts_give_only_safe_paths_and_lines(found: object) -> None:
    with suppress(ValueError):
        facts = parse_probe(json.dumps(found))
        for path in (facts.python, facts.shell):
            assert path == "" or (path.startswith("/") and ".." not in path.split("/"))
        for text in account_files(facts, 1234, 1234):
            lines = text.splitlines()
            assert len(lines) <= MAX_ACCOUNTS + 1
            # A line break in a forged entry would add a second entry.
            assert lines[0].startswith("work:x:1234:")
            assert all(":1234:" not in f":{line.split(':')[2]}:" for line in lines[1:])
        environ = session_environ(facts, {})
        assert all("\0" not in value for value in environ.values())


@given(st.text(max_size=200))
def test_any_output_of_a_probe_is_rejected_or_parsed(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_probe(text), ProbedImage)


def test_output_that_is_too_long_or_too_deep_is_rejected() -> None:
    for text in (" " * (MAX_PROBE_BYTES + 1), "[" * 100_000):
        with pytest.raises(ValueError, match="too"):
            parse_probe(text)


def test_the_user_of_the_session_replaces_the_entry_with_the_same_id() -> None:
    passwd, group = account_files(parse_probe(json.dumps(DEBIAN)), 1000, 1000)
    assert passwd.splitlines() == [
        "work:x:1000:1000::/home/work:/bin/bash",
        "root:x:0:0:root:/root:/bin/bash",
    ]
    assert group.splitlines() == ["work:x:1000:", "root:x:0:"]


@pytest.mark.parametrize(
    "changes, python, packages, notices",
    [
        pytest.param({}, "/usr/bin/python3", "/opt/bai/kernels/glibc-3.11", 0, id="plain Python"),
        pytest.param(
            {"libc": "musl", "python_version": "3.13.1"},
            "/usr/bin/python3",
            "/opt/bai/kernels/musl-3.13",
            0,
            id="musl",
        ),
        pytest.param(
            {"has_ipykernel": True}, "/usr/bin/python3", None, 0, id="its own kernel packages"
        ),
        pytest.param({"python_version": "3.8.10"}, None, None, 1, id="too old"),
        pytest.param({"python_version": "3.99.0"}, None, None, 1, id="too new"),
        pytest.param({"python": ""}, None, None, 1, id="no Python"),
    ],
)
def test_notebooks_use_the_python_of_the_image_where_possible(
    changes: dict[str, object], python: str | None, packages: str | None, notices: int
) -> None:
    facts = parse_probe(json.dumps({**DEBIAN, **changes}))
    environ = session_environ(facts, {"PATH": "/x", "LANG": "ko_KR.UTF-8"})
    assert environ.get("BAI_IMAGE_PYTHON") == python
    assert environ.get("BAI_KERNEL_PACKAGES") == packages
    assert len(notices_of(facts)) == notices
    assert "LANG" not in environ


def test_an_image_without_shell_gets_one() -> None:
    environ = session_environ(ProbedImage(), {"PATH": "/app"})
    assert environ["SHELL"] == BUSYBOX_SHELL
    assert environ["PATH"].startswith("/app:")


@pytest.mark.parametrize(
    "environ, version",
    [
        (
            {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470", "CUDA_VERSION": "1"},
            "12.4",
        ),
        ({"CUDA_VERSION": "12.6.3.004"}, "12.6"),
        ({"CUDA_VERSION": "latest"}, ""),
        ({}, ""),
    ],
)
def test_the_cuda_requirement_is_read_from_the_variables(
    environ: dict[str, str], version: str
) -> None:
    assert cuda_requirement(environ) == version


def test_labels_of_the_image_take_precedence_over_derived_ones() -> None:
    ngc = parse_environ(["NVIDIA_PRODUCT_NAME=PyTorch", "CUDA_VERSION=12.6.3", "broken", 7])
    derived = {"ai.backend.accelerators": "cuda", "ai.backend.min-cuda": "12.6"}
    assert derived_labels(ngc, {"a": "b"}) == {**derived, "a": "b"}
    own = {"ai.backend.min-cuda": "11.8"}
    assert derived_labels(ngc, own)["ai.backend.min-cuda"] == "11.8"
    assert derived_labels({"PATH": "/bin"}, {"a": "b"}) == {"a": "b"}
    assert derived_labels({}, {"com.nvidia.build.id": "1"})["ai.backend.accelerators"] == "cuda"


def test_images_with_the_parts_are_recognized_by_their_label() -> None:
    assert not needs_parts({"ai.backend.runtime-path": "/opt/bai/bin/python"})
    assert needs_parts({"ai.backend.runtime-path": "/usr/bin/python"})
    assert needs_parts({})
