"""Sources of imports into folders: git repositories, archives and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..folders.vfolders import is_reserved
from ..ip_addresses import parse_address
from ..models.imports import host_of, is_safe_path
from ..refusal_texts import RefusalText
from ..sessions.callbacks import AllowedTargets, check_url
from ..user_input import shown

MAX_BRANCH = 128
MAX_TOKEN = 512
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_BRANCH = re.compile(r"[A-Za-z0-9][\w./+@-]{0,127}", re.ASCII)
# Final dots and percent-encoding are rejected, so that git and the address check resolve the same
# host.
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)
_TOKEN = re.compile(r"[!-~]+")
_FOLDER_CHARACTER = re.compile(r"[^A-Za-z0-9._-]+")
_FILE_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}")
_GITHUB, _RAW_GITHUB = "github.com", "raw.githubusercontent.com"


class SourceKind(StrEnum):
    GIT = "git"  # the files of one commit of a repository
    ARCHIVE = "archive"  # the files of a zip or tar archive
    FILE = "file"  # one file, such as a notebook


@dataclass(frozen=True, slots=True)
class ImportSource:
    """The source of an import. ``branch``: branch, tag or commit, "" for the default branch.

    ``path``: the file to which the link leads, relative to the imported files; "" for other links.
    """

    kind: SourceKind
    url: str
    branch: str = ""
    path: str = ""

    @property
    def host(self) -> str:
        return host_of(self.url) or ""

    @property
    def name(self) -> str:
        """Return the default name of the folder."""
        last = unquote(urlsplit(self.url).path).rstrip("/").rpartition("/")[2]
        for suffix in (".git", ".ipynb", *ARCHIVE_SUFFIXES):
            if last.lower().endswith(suffix):
                last = last[: -len(suffix)]
                break
        name = _FOLDER_CHARACTER.sub("-", last)[:60].lstrip("._-")
        return "imported" if not name or is_reserved(name) else name


def check_source(given: Mapping[str, Any], targets: AllowedTargets) -> ImportSource:
    """Return the source from a request with ``repo`` (a URL), ``branch``, ``path`` and ``kind``.

    A link to a page of GitHub or GitLab is converted to the repository or file on that page.

    Raises
    ------
    InvalidRequest
        If a value is not valid, or the host is not allowed.
    """
    url, branch, path = _text(given, "repo"), _text(given, "branch"), _text(given, "path")
    if targets.is_off:
        raise InvalidRequest(refusal(RefusalText.IMPORTS_DISABLED), field="repo")
    if not url:
        raise InvalidRequest(refusal(RefusalText.IMPORT_NO_URL), field="repo")
    # Check the hosts first: the message of ``check_url`` mentions callbacks.
    if isinstance(host := host_of(url), str) and not targets.allows_name(host):
        raise InvalidRequest(
            refusal(RefusalText.IMPORT_HOST_REFUSED, host=shown(host)), field="repo"
        )
    check_url(url, targets, "repo")
    kind = _text(given, "kind")
    source = _recognized(url, SourceKind(kind) if kind else None)
    source = ImportSource(source.kind, source.url, branch or source.branch, path or source.path)
    if not targets.allows_name(source.host):
        raise InvalidRequest(
            refusal(RefusalText.IMPORT_HOST_REFUSED, host=shown(source.host)), field="repo"
        )
    if source.branch and (not _BRANCH.fullmatch(source.branch) or ".." in source.branch):
        raise InvalidRequest(
            refusal(RefusalText.NOT_A_BRANCH, branch=shown(source.branch)), field="branch"
        )
    if source.path and not is_safe_path(source.path):
        raise InvalidRequest(
            refusal(RefusalText.NOT_A_FILE_PATH, path=shown(source.path)), field="path"
        )
    if source.kind is SourceKind.GIT and urlsplit(source.url).scheme != "https":
        raise InvalidRequest(refusal(RefusalText.IMPORT_ONLY_HTTPS), field="repo")
    if (
        source.kind is SourceKind.GIT
        and parse_address(source.host) is None
        and not _HOST.fullmatch(source.host)
    ):
        raise InvalidRequest(refusal(RefusalText.NOT_A_HOST, host=shown(source.host)), field="repo")
    if source.kind is SourceKind.GIT and urlsplit(source.url).query:
        raise InvalidRequest(refusal(RefusalText.IMPORT_QUERY), field="repo")
    if source.kind is not SourceKind.GIT and source.branch:
        raise InvalidRequest(refusal(RefusalText.IMPORT_BRANCH), field="branch")
    if source.kind is SourceKind.FILE and not is_safe_path(file_name(source.url)):
        raise InvalidRequest(refusal(RefusalText.IMPORT_FILE_NAME), field="repo")
    return source


def check_token(token: str, source: ImportSource) -> str:
    """Return the access token for a repository, "" if there is none.

    Raises
    ------
    InvalidRequest
        If the token is not valid, or the source is not a repository.
    """
    if token and source.kind is not SourceKind.GIT:
        raise InvalidRequest(refusal(RefusalText.IMPORT_TOKEN_OF_REPOSITORY), field="token")
    if token and (len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token)):
        raise InvalidRequest(
            refusal(RefusalText.IMPORT_TOKEN, limit=MAX_TOKEN),
            field="token",
        )
    return token


def file_name(url: str) -> str:
    """Return the name of the file at a URL."""
    return unquote(urlsplit(url).path).rpartition("/")[2]


def open_path(source: ImportSource, folder: str, directory: str, given: str = "") -> str:
    """Return the path, below the URL of a session, of the page that opens after an import.

    ``given``: a path such as ``lab/tree/folder/a.ipynb``; "" for the default, which is JupyterLab
    with the file of the source.

    Raises
    ------
    InvalidRequest
        If the directory or the given path is not valid.
    """
    if directory and not is_safe_path(directory):
        raise InvalidRequest(
            refusal(RefusalText.NOT_A_FOLDER_PATH, path=shown(directory)), field="directory"
        )
    if given:
        plain = given.partition("?")[0].strip("/")
        if not is_safe_path(unquote(plain)) or not given.isascii() or not given.isprintable():
            raise InvalidRequest(
                refusal(RefusalText.NOT_A_SESSION_PATH, path=shown(given)), field="urlpath"
            )
        return plain
    path = file_name(source.url) if source.kind is SourceKind.FILE else source.path
    return quote("/".join(part for part in ("lab/tree", folder, directory, path) if part))


def _text(given: Mapping[str, Any], name: str) -> str:
    return str(given.get(name) or "").strip()


def _recognized(url: str, kind: SourceKind | None) -> ImportSource:
    parts = urlsplit(url)
    names = [name for name in parts.path.split("/") if name]
    site = f"{parts.scheme}://{parts.netloc}"
    host = parts.hostname or ""
    if kind is None or kind is SourceKind.GIT:
        if host == _GITHUB and len(names) >= 2:
            return _github(site, names)
        if "-" in names[2:] and len(names) > names.index("-", 2) + 1:
            return _gitlab(site, names, names.index("-", 2))
        if host == "gitlab.com" and len(names) >= 2:
            return ImportSource(SourceKind.GIT, _repository(f"{site}/{'/'.join(names)}"))
    if kind is None:
        path = parts.path.lower()
        last = path.rpartition("/")[2]
        if path.endswith(ARCHIVE_SUFFIXES):
            kind = SourceKind.ARCHIVE
        elif not last.endswith(".git") and _FILE_SUFFIX.search(last):
            kind = SourceKind.FILE
        else:
            kind = SourceKind.GIT
    return ImportSource(kind, url)


def _github(site: str, names: list[str]) -> ImportSource:
    owner, repository, *rest = names
    repository = repository.removesuffix(".git")
    clone = f"{site}/{owner}/{repository}.git"
    match rest:
        case ["tree", branch, *path]:
            return ImportSource(SourceKind.GIT, clone, unquote(branch), unquote("/".join(path)))
        case ["blob", branch, *path] if path:
            raw = "/".join((owner, repository, branch, *path))
            return ImportSource(SourceKind.FILE, f"https://{_RAW_GITHUB}/{raw}")
        case ["archive", *_]:
            return ImportSource(SourceKind.ARCHIVE, "/".join((site, *names)))
        case []:
            return ImportSource(SourceKind.GIT, clone)
    raise InvalidRequest(refusal(RefusalText.IMPORT_NO_LINK), field="repo")


def _gitlab(site: str, names: list[str], dash: int) -> ImportSource:
    """Return the source of a GitLab page: its path has ``/-/`` on every GitLab site."""
    project, rest = "/".join(names[:dash]), names[dash + 1 :]
    clone = _repository(f"{site}/{project}")
    match rest:
        case ["tree", branch, *path]:
            return ImportSource(SourceKind.GIT, clone, unquote(branch), unquote("/".join(path)))
        case [("blob" | "raw"), branch, *path] if path:
            raw = "/".join((project, "-/raw", branch, *path))
            return ImportSource(SourceKind.FILE, f"{site}/{raw}")
        case ["archive", *_]:
            return ImportSource(SourceKind.ARCHIVE, f"{site}/{'/'.join(names)}")
    raise InvalidRequest(refusal(RefusalText.IMPORT_NO_LINK), field="repo")


def _repository(url: str) -> str:
    return url if url.endswith(".git") else f"{url}.git"
