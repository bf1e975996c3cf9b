"""SBOMs (software bills of materials) of images: a JSON file in the image, named by a label."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..errors import InvalidRequest
from .custom_images import CUSTOM_LABEL

# The image's absolute path of the file; the format is CycloneDX or SPDX.
SBOM_LABEL = "org.bai.sbom"
MAX_SBOM_BYTES = 16 * 2**20
# Maximum size of a compressed SBOM: a report has at most 1 MiB.
MAX_PACKED_CHARACTERS = 900_000
MAX_PACKAGES = 50_000
MAX_FIELD_CHARACTERS = 255
MAX_PATH_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class SbomRequest:
    """The request to an agent to read the SBOM of an image."""

    id: str
    image: str

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> SbomRequest:
        """Parse a work item.

        Raises
        ------
        InvalidRequest
            If a field is missing.
        """
        try:
            return cls(str(item["id"]), str(item["image"]))
        except KeyError as error:
            raise InvalidRequest(f"a work item cannot be parsed: {error!r}") from error


@dataclass(frozen=True, slots=True)
class SbomPackage:
    """A package. ``kind`` is the type of its package URL, such as ``pypi`` or ``deb``."""

    name: str
    version: str
    kind: str


@dataclass(frozen=True, slots=True)
class ImageSbom:
    """The SBOM of an image, read from a copy of the image on an agent.

    ``is_of_base``: the image is a commit or was built from a recipe, and the SBOM describes the
    image on which it is based. ``document``: the file itself.
    """

    image: str
    agent_id: str
    format: str
    spec_version: str
    is_of_base: bool
    packages: Sequence[SbomPackage]
    document: Mapping[str, Any]


def sbom_path(labels: Mapping[str, str]) -> str:
    """Return the path of an image's SBOM; empty if the image has none."""
    path = labels.get(SBOM_LABEL, "")
    is_valid = len(path) <= MAX_PATH_CHARACTERS and path.isprintable()
    parts = PurePosixPath(path).parts
    return path if is_valid and parts[:1] == ("/",) and ".." not in parts else ""


def pack_sbom(content: bytes) -> str:
    """Return a file as text for a report.

    Raises
    ------
    InvalidRequest
        If the file is too large.
    """
    packed = base64.b64encode(zlib.compress(content, 9)).decode()
    if len(content) > MAX_SBOM_BYTES or len(packed) > MAX_PACKED_CHARACTERS:
        raise InvalidRequest(f"the SBOM of the image is too large ({len(content)} bytes)")
    return packed


def unpack_sbom(packed: str) -> bytes:
    """Return the file in a report; the image or the agent may have forged it.

    Raises
    ------
    InvalidRequest
        If the text is too long or malformed, or the file is too large.
    """
    if len(packed) > MAX_PACKED_CHARACTERS:
        raise InvalidRequest("the report with the SBOM is too long")
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_SBOM_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        raise InvalidRequest("the report with the SBOM is malformed") from None
    if not unpacker.eof:
        raise InvalidRequest("the SBOM of the image is incomplete or too large")
    return content


def parse_sbom(
    image: str, agent_id: str, labels: Mapping[str, str], content: bytes | str
) -> ImageSbom:
    """Parse an SBOM in format CycloneDX or SPDX (version 2).

    Raises
    ------
    InvalidRequest
        If the file has another format, or too many packages.
    """
    try:
        document = json.loads(content, parse_constant=_reject)
    except (ValueError, RecursionError):
        raise InvalidRequest("the SBOM of the image is not valid JSON") from None
    if not isinstance(document, dict):
        raise InvalidRequest("the SBOM of the image is not an object")
    if document.get("bomFormat") == "CycloneDX":
        kind, version = "CycloneDX", document.get("specVersion")
        packages = [_cyclonedx(each) for each in _objects(document, "components")]
    elif str(document.get("spdxVersion", "")).startswith("SPDX-"):
        kind, version = "SPDX", str(document["spdxVersion"]).removeprefix("SPDX-")
        packages = [_spdx(each) for each in _objects(document, "packages")]
    else:
        raise InvalidRequest("the SBOM of the image has an unknown format")
    return ImageSbom(
        image=image,
        agent_id=agent_id,
        format=kind,
        spec_version=_text(version),
        is_of_base=any(name.startswith(CUSTOM_LABEL) for name in labels),
        packages=sorted(packages, key=lambda each: (each.kind, each.name.lower(), each.version)),
        document=document,
    )


def _objects(document: Mapping[str, Any], field: str) -> Sequence[Mapping[str, Any]]:
    found = document.get(field)
    items = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    if len(items) > MAX_PACKAGES:
        raise InvalidRequest(f"the SBOM of the image has more than {MAX_PACKAGES} packages")
    return items


def _cyclonedx(component: Mapping[str, Any]) -> SbomPackage:
    name, version = _text(component.get("name")), _text(component.get("version"))
    return SbomPackage(name, version, _kind(component.get("purl")))


def _spdx(package: Mapping[str, Any]) -> SbomPackage:
    locators = [str(each.get("referenceLocator")) for each in _objects(package, "externalRefs")]
    purl = next((each for each in locators if each.startswith("pkg:")), "")
    name, version = _text(package.get("name")), _text(package.get("versionInfo"))
    return SbomPackage(name, version, _kind(purl))


def _kind(purl: object) -> str:
    text = purl if isinstance(purl, str) else ""
    return _text(text.removeprefix("pkg:").partition("/")[0]) if text.startswith("pkg:") else ""


def _text(value: object) -> str:
    return value[:MAX_FIELD_CHARACTERS] if isinstance(value, str) else ""


def _reject(_: str) -> None:
    raise ValueError("not a JSON number")
