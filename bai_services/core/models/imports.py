"""Imports of models: states, sources, and selection of the files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from ..display_text import text_problem
from ..errors import InvalidRequest, TooLarge
from ..sessions.callbacks import AllowedTargets, check_url
from ..user_input import shown

MAX_FILES = 2000
MAX_PATH = 512
MAX_PATTERNS = 20
MAX_INFO_BYTES = 4 * 2**20
MAX_LABELS = 32
# Maximum size of a file that a hub may report, in bytes.
MAX_FILE_BYTES = 10**18
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,127}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FOLDER_CHARACTER = re.compile(r"[^A-Za-z0-9._-]+")


class SourceKind(StrEnum):
    HUGGINGFACE = "huggingface"  # a model of a Hugging Face-compatible hub
    URL = "url"  # one file


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a model. ``sha256``: checksum of the file at a URL, "" if unknown."""

    kind: SourceKind
    name: str
    revision: str = ""
    patterns: tuple[str, ...] = ()
    sha256: str = ""

    @property
    def folder(self) -> str:
        """Return the default name of the folder."""
        parts = [part for part in urlsplit(self.name).path.split("/") if part]
        name = _FOLDER_CHARACTER.sub("-", unquote(parts[-1] if parts else ""))[:64]
        return name.lstrip("._-") or "model"


def check_source(given: Mapping[str, Any], targets: AllowedTargets) -> Source:
    """Return the source from a request: ``repository`` with ``revision`` and ``patterns``, or
    ``url`` with ``sha256``.

    Raises
    ------
    InvalidRequest
        If both or neither of ``repository`` and ``url`` are given, or a value is not valid.
    """
    repository, url = given.get("repository") or "", given.get("url") or ""
    if bool(repository) == bool(url):
        raise InvalidRequest("give either repository or url", field="repository")
    if targets.is_off:
        raise InvalidRequest("imports are disabled on this site", field="repository")
    if url:
        if isinstance(host := host_of(url), str) and not targets.allows_name(host):
            raise InvalidRequest(f"imports from {shown(host)} are not allowed", field="url")
        check_url(url, targets, "url")
        path_of(urlsplit(url).path)
        sha256 = (given.get("sha256") or "").lower()
        if sha256 and not _SHA256.fullmatch(sha256):
            raise InvalidRequest("sha256 must have 64 hexadecimal digits", field="sha256")
        return Source(SourceKind.URL, url, sha256=sha256)
    revision = given.get("revision") or "main"
    if not _REPOSITORY.fullmatch(repository) or ".." in repository:
        raise InvalidRequest(
            f"{shown(repository)!r} is not the name of a model, such as google/gemma-2-2b",
            field="repository",
        )
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise InvalidRequest(f"{shown(revision)!r} is not a revision", field="revision")
    patterns = tuple(given.get("patterns") or ())
    if len(patterns) > MAX_PATTERNS or any(not p or len(p) > MAX_PATH for p in patterns):
        raise InvalidRequest(
            f"give at most {MAX_PATTERNS} patterns of 1 to {MAX_PATH} characters", field="patterns"
        )
    return Source(SourceKind.HUGGINGFACE, repository, revision, patterns)


def host_of(url: str) -> str | None:
    """Return the host of a URL; None if the URL is not valid."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def path_of(url_path: str) -> str:
    """Return the name under which the file at a URL with this path is stored.

    Raises
    ------
    InvalidRequest
        If the path does not end with the name of a file.
    """
    name = unquote(url_path).rpartition("/")[2]
    if not is_safe_path(name):
        raise InvalidRequest("the URL must end with the name of a file", field="url")
    return name


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a model at a hub; ``size`` is None if the hub does not report it."""

    path: str
    size: int | None = None
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A revision of a model at a hub."""

    commit: str
    files: Sequence[RemoteFile]
    metadata: Mapping[str, Any]


def parse_info(answer: object) -> ModelInfo:
    """Return the model that ``/api/models/NAME/revision/REVISION`` describes.

    Raises
    ------
    ValueError
        If the answer does not follow the protocol, or exceeds a limit.
    """
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    commit, siblings = answer.get("sha"), answer.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise ValueError("the answer has no commit")
    if not isinstance(siblings, list):
        raise ValueError("the answer has no list of files")
    if len(siblings) > MAX_FILES:
        raise ValueError(f"the model has more than {MAX_FILES} files")
    return ModelInfo(commit, [_remote_file(each) for each in siblings], _hub_metadata(answer))


def _remote_file(entry: object) -> RemoteFile:
    if not isinstance(entry, dict) or not isinstance(path := entry.get("rfilename"), str):
        raise ValueError("a file of the answer has no name")
    if not is_safe_path(path):
        raise ValueError(f"the name of a file is not valid: {shown(path)!r}")
    lfs = entry.get("lfs")
    details = lfs if isinstance(lfs, dict) else {}
    size = details.get("size", entry.get("size"))
    sha256 = details.get("sha256", details.get("oid", ""))
    is_size = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MAX_FILE_BYTES
    if size is not None and not is_size:
        raise ValueError("the size of a file is not valid")
    is_hash = isinstance(sha256, str) and _SHA256.fullmatch(sha256) is not None
    return RemoteFile(path, size, str(sha256) if is_hash else "")


def is_safe_path(path: str) -> bool:
    """Return whether a name from another site can be a path in a folder."""
    parts = path.split("/")
    is_plain = all(
        part not in ("", ".", "..") and len(part.encode(errors="replace")) <= 255 for part in parts
    )
    return is_plain and len(path) <= MAX_PATH and "\\" not in path and not text_problem(path)


def chosen_files(
    files: Sequence[RemoteFile], patterns: Sequence[str], max_bytes: int
) -> list[RemoteFile]:
    """Return the files that match one of the patterns (all files without patterns), sorted by path.

    Raises
    ------
    InvalidRequest
        If no file matches.
    TooLarge
        If the total size of the files exceeds ``max_bytes``.
    """
    found = [
        file
        for file in sorted(files, key=lambda each: each.path)
        if not patterns or any(fnmatchcase(file.path, pattern) for pattern in patterns)
    ]
    if not found:
        raise InvalidRequest("no file of the model matches the patterns", field="patterns")
    total = sum(file.size or 0 for file in found)
    if total > max_bytes:
        raise TooLarge(
            f"the files have {total} bytes; an import may have at most {max_bytes}",
            size_bytes=total,
            limit_bytes=max_bytes,
        )
    return found


def checksum_of_etag(etag: str) -> str:
    """Return the SHA-256 in an ETag of a hub; "" if the ETag is not a SHA-256."""
    text = etag.removeprefix("W/").strip('"').lower()
    return text if _SHA256.fullmatch(text) else ""


def _hub_metadata(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    card = answer.get("cardData")
    card = card if isinstance(card, dict) else {}
    tags = answer.get("tags")
    labels = [_shown_text(tag) for tag in tags[:200]] if isinstance(tags, list) else []
    found = {
        "author": _shown_text(answer.get("author")),
        "task": _shown_text(answer.get("pipeline_tag")),
        "license": _shown_text(card.get("license")),
        "framework": [text] if (text := _shown_text(answer.get("library_name"))) else [],
        "label": [label for label in labels if label and ":" not in label][:MAX_LABELS],
        "last_modified": _shown_text(answer.get("lastModified")),
    }
    return {key: value for key, value in found.items() if value}


def _shown_text(value: object) -> str:
    """Return a short text from another site; "" if it is not suitable for display."""
    if not isinstance(value, str) or len(value) > 64 or text_problem(value):
        return ""
    return value.strip()


def definition_of(source: Source, folder: str, commit: str, metadata: Mapping[str, Any]) -> str:
    """Return a definition for an imported model that has no definition."""
    is_file = source.kind is SourceKind.URL
    values = {"title": folder if is_file else source.name, "version": commit[:12], **metadata}
    path = f"/{path_of(urlsplit(source.name).path)}" if is_file else ""
    model = {"name": folder, "model_path": f"/models{path}", "metadata": values}
    text = yaml.safe_dump({"models": [model]}, sort_keys=False, allow_unicode=True)
    return f"# Written by an import; add a service to run it with the variant custom.\n{text}"
