"""Parse responses of the OCI distribution protocol: lists, manifests, configurations, challenges.

All functions accept any JSON value and raise only ``ValueError`` for malformed content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .image_labels import MAX_LABEL_CHARACTERS, MAX_LABELS, PREFIX
from .image_probe import derived_labels, parse_environ

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
MAX_PLATFORMS = 32
MAX_LAYERS = 1000
MAX_SIZE_BYTES = 2**62
MAX_TOKEN_CHARACTERS = 16_384
DEFAULT_TOKEN_SECONDS = 60
MAX_TOKEN_SECONDS = 3600

# Maps the name of an architecture in images to the name that machines report.
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}
_ARCHITECTURE = re.compile(r"[a-z0-9_]{1,32}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"\\]*)"')
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9._/-]{0,254}")


@dataclass(frozen=True, slots=True)
class Platform:
    """An entry of an image index: the manifest of one architecture."""

    digest: str
    architecture: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """An image manifest; ``size_bytes`` is the compressed size, which a pull transfers."""

    config_digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageConfig:
    architecture: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Challenge:
    """How a registry requests credentials: ``basic``, or ``bearer`` with the URL for tokens."""

    scheme: str
    realm: str = ""
    service: str = ""


def parse_repositories(document: Any) -> list[str]:
    """Return the repositories on a page of the catalog; drop entries that are not valid names."""
    return [name for name in _strings(document, "repositories") if _REPOSITORY.fullmatch(name)]


def parse_tags(document: Any) -> list[str]:
    """Return the tags on a page of a tag list; drop entries that are not valid tags."""
    return [tag for tag in _strings(document, "tags") if _TAG.fullmatch(tag)]


def parse_manifest(document: Any) -> Manifest | Sequence[Platform]:
    """Return a manifest, or the Linux platforms of an image index.

    Raises
    ------
    ValueError
        If the document has neither form, or one of its fields is malformed.
    """
    if not isinstance(document, dict):
        raise ValueError("the manifest is not an object")
    if isinstance(document.get("manifests"), list):
        return _platforms(document["manifests"])
    config, layers = document.get("config"), document.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise ValueError("the manifest has an unsupported format")
    if len(layers) > MAX_LAYERS:
        raise ValueError(f"the manifest has more than {MAX_LAYERS} layers")
    size = sum(_size(part) for part in (config, *layers))
    if size > MAX_SIZE_BYTES:
        raise ValueError("the sizes in the manifest are not valid")
    return Manifest(_digest(config), size)


def parse_config(document: Any) -> ImageConfig:
    """Return the architecture and the labels of an image configuration.

    For an image with CUDA, labels of the platform are derived from the image's environment
    variables. Labels that are not texts are dropped. If there are too many labels, or they are too
    long, only the labels of the platform remain.

    Raises
    ------
    ValueError
        If the image is not for Linux, or its architecture is malformed.
    """
    if not isinstance(document, dict) or document.get("os", "linux") != "linux":
        raise ValueError("the image is not for Linux")
    config = document.get("config")
    found = config.get("Labels") if isinstance(config, dict) else None
    labels = {
        name: text
        for name, text in (found.items() if isinstance(found, dict) else ())
        if isinstance(text, str) and len(name) + len(text) <= MAX_LABEL_CHARACTERS
        # Drop labels with a NUL, which PostgreSQL cannot store.
        if "\0" not in name + text
    }
    if len(labels) > MAX_LABELS:
        labels = {name: text for name, text in labels.items() if name.startswith(PREFIX)}
    environ = parse_environ(config.get("Env") if isinstance(config, dict) else None)
    labels = derived_labels(environ, labels)
    return ImageConfig(_architecture(document.get("architecture")), labels)


def has_platform_labels(labels: Mapping[str, str]) -> bool:
    return any(name.startswith(PREFIX) for name in labels)


def parse_challenge(header: str) -> Challenge:
    """Parse a ``WWW-Authenticate`` header.

    Raises
    ------
    ValueError
        If the scheme is neither Basic nor Bearer, or Bearer has no realm.
    """
    scheme, _, rest = header[:4096].strip().partition(" ")
    if scheme.lower() == "basic":
        return Challenge("basic")
    parameters = {name.lower(): text for name, text in _PARAMETER.findall(rest)}
    if scheme.lower() != "bearer" or not parameters.get("realm"):
        raise ValueError("the registry requires an unsupported kind of authentication")
    return Challenge("bearer", parameters["realm"], parameters.get("service", ""))


def parse_token(document: Any) -> tuple[str, int]:
    """Return a token and its lifetime in seconds.

    Raises
    ------
    ValueError
        If there is no token, or it has characters that a header cannot contain.
    """
    values = document if isinstance(document, dict) else {}
    token = values.get("token") or values.get("access_token")
    is_text = isinstance(token, str) and token.isascii() and token.isprintable()
    if not isinstance(token, str) or not is_text or not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
        raise ValueError("the registry returned no valid token")
    seconds = values.get("expires_in")
    is_number = isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0
    lifetime = seconds if isinstance(seconds, int) and is_number else DEFAULT_TOKEN_SECONDS
    return token, min(lifetime, MAX_TOKEN_SECONDS)


def _strings(document: Any, field: str) -> list[str]:
    values = document.get(field) if isinstance(document, dict) else None
    # Accept null, because an empty repository has it instead of an empty list.
    if values is None and isinstance(document, dict) and field in document:
        return []
    if not isinstance(values, list):
        raise ValueError(f"the response has no list {field!r}")
    return [value for value in values if isinstance(value, str)]


def _platforms(entries: Sequence[Any]) -> list[Platform]:
    found: dict[str, Platform] = {}
    for entry in entries[: 4 * MAX_PLATFORMS]:
        platform = entry.get("platform") if isinstance(entry, dict) else None
        if not isinstance(platform, dict) or platform.get("os") != "linux":
            continue  # such as an attestation, which has the platform "unknown"
        architecture = _architecture(platform.get("architecture"))
        # If an architecture has several variants, the first variant is preferred.
        found.setdefault(architecture, Platform(_digest(entry), architecture))
    return list(found.values())[:MAX_PLATFORMS]


def _architecture(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("the image has no architecture")
    name = _ARCHITECTURES.get(value, value)
    if not _ARCHITECTURE.fullmatch(name):
        raise ValueError("the architecture of the image is not valid")
    return name


def _digest(entry: Mapping[str, Any]) -> str:
    digest = entry.get("digest")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError("a digest in the manifest is not valid")
    return digest


def _size(entry: Any) -> int:
    size = entry.get("size") if isinstance(entry, dict) else None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_SIZE_BYTES:
        raise ValueError("a size in the manifest is not valid")
    return size
