"""Sources of imports: recognition of links, names of folders, and paths in a session."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.vfolders import check_name
from bai_services.core.imports.sources import ImportSource, SourceKind, check_source, open_path
from bai_services.core.sessions.callbacks import AllowedTargets

ALL = AllowedTargets()
GIT, ARCHIVE, FILE = SourceKind


@pytest.mark.parametrize(
    "url, source",
    [
        ("https://github.com/a/b", ImportSource(GIT, "https://github.com/a/b.git")),
        ("https://github.com/a/b.git", ImportSource(GIT, "https://github.com/a/b.git")),
        (
            "https://github.com/a/b/tree/v1/x/y",
            ImportSource(GIT, "https://github.com/a/b.git", "v1", "x/y"),
        ),
        (
            "https://github.com/a/b/blob/main/x%20y.ipynb",
            ImportSource(FILE, "https://raw.githubusercontent.com/a/b/main/x%20y.ipynb"),
        ),
        ("https://gitlab.com/a/b/c", ImportSource(GIT, "https://gitlab.com/a/b/c.git")),
        (
            "https://git.example.org/a/b/-/tree/dev",
            ImportSource(GIT, "https://git.example.org/a/b.git", "dev"),
        ),
        (
            "https://git.example.org/a/b/-/blob/dev/n.ipynb",
            ImportSource(FILE, "https://git.example.org/a/b/-/raw/dev/n.ipynb"),
        ),
        ("https://example.org/x.ZIP?s=1", ImportSource(ARCHIVE, "https://example.org/x.ZIP?s=1")),
        ("http://example.org/n.ipynb", ImportSource(FILE, "http://example.org/n.ipynb")),
        ("https://example.org/repo", ImportSource(GIT, "https://example.org/repo")),
    ],
)
def test_links_are_recognized(url: str, source: ImportSource) -> None:
    assert check_source({"repo": url}, ALL) == source


@pytest.mark.parametrize(
    "values, field",
    [
        ({"repo": ""}, "repo"),
        ({"repo": "file:///etc/passwd"}, "repo"),
        ({"repo": "ssh://git@example.org/a.git"}, "repo"),
        ({"repo": "https://github.com/a/b/issues/1"}, "repo"),
        ({"repo": "https://example.org/a.git?x=1"}, "repo"),
        ({"repo": "https://example.org./a.git"}, "repo"),
        ({"repo": "https://ex%61mple.org/a.git"}, "repo"),
        ({"repo": "https://example.org/a.git", "branch": "-x"}, "branch"),
        ({"repo": "https://example.org/a.git", "branch": "a..b"}, "branch"),
        ({"repo": "https://example.org/a.git", "path": "/etc/passwd"}, "path"),
        ({"repo": "https://example.org/a.zip", "branch": "main"}, "branch"),
        ({"repo": "https://example.org/", "kind": "file"}, "repo"),
    ],
)
def test_invalid_sources_name_their_field(values: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_source(values, ALL)
    assert refused.value.details["field"] == field


def test_the_host_of_a_rewritten_link_must_be_allowed() -> None:
    targets = AllowedTargets.parse("github.com", "")
    assert check_source({"repo": "https://github.com/a/b"}, targets).host == "github.com"
    with pytest.raises(InvalidRequest, match="raw.githubusercontent.com"):
        check_source({"repo": "https://github.com/a/b/blob/main/c.ipynb"}, targets)


@given(st.text(max_size=80), st.text(max_size=30), st.text(max_size=60))
def test_an_accepted_source_is_a_web_address_with_a_valid_folder(
    rest: str, branch: str, path: str
) -> None:
    values = {"repo": f"https://example.org/{rest}", "branch": branch, "path": path}
    try:
        source = check_source(values, ALL)
        address = open_path(source, "folder", "", path)
    except InvalidRequest:
        return
    assert urlsplit(source.url).hostname == "example.org"
    assert not source.branch.startswith("-")
    assert check_name(source.name) == source.name
    assert ".." not in address.split("/")
    assert not address.startswith("/")
