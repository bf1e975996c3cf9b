"""SBOMs of images: path, transport in reports, and the formats CycloneDX and SPDX."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from bai_services.core.cluster import sbom
from bai_services.core.cluster.sbom import SbomPackage, pack_sbom, parse_sbom, unpack_sbom
from bai_services.core.errors import InvalidRequest

CYCLONEDX: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "components": [
        {"name": "toolz", "version": "1.0.0", "purl": "pkg:pypi/toolz@1.0.0"},
        {"name": "curl", "version": "7.88.1-10", "purl": "pkg:deb/debian/curl@7.88.1-10"},
        {"name": "unknown", "version": None},
        "not a component",
    ],
}
SPDX: dict[str, Any] = {
    "spdxVersion": "SPDX-2.3",
    "packages": [
        {
            "name": "numpy",
            "versionInfo": "2.0",
            "externalRefs": [{"referenceLocator": "pkg:pypi/numpy@2.0"}],
        }
    ],
}


def parse(document: Any, **labels: str) -> sbom.ImageSbom:
    return parse_sbom("py:1", "a1", labels, json.dumps(document))


def test_packages_of_both_formats_are_listed() -> None:
    found = parse(CYCLONEDX)
    assert (found.format, found.spec_version, found.is_of_base) == ("CycloneDX", "1.6", False)
    assert found.packages == [
        SbomPackage("unknown", "", ""),
        SbomPackage("curl", "7.88.1-10", "deb"),
        SbomPackage("toolz", "1.0.0", "pypi"),
    ]
    assert found.document == CYCLONEDX
    spdx = parse(SPDX)
    assert (spdx.format, spdx.spec_version) == ("SPDX", "2.3")
    assert spdx.packages == [SbomPackage("numpy", "2.0", "pypi")]


def test_a_commit_has_the_sbom_of_its_base() -> None:
    labels = {"ai.backend.customized-image.owner": "user"}
    assert parse_sbom("c:1", "a1", labels, json.dumps(CYCLONEDX)).is_of_base


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"bomFormat": "CycloneDX", "serialNumber": NaN}', "not valid JSON"),
        (b"[]", "not an object"),
        (b"{}", "unknown format"),
        (
            json.dumps({"bomFormat": "CycloneDX", "components": [{}] * 50_001}).encode(),
            "more than 50000 packages",
        ),
    ],
    ids=["encoding", "depth", "nan", "list", "format", "packages"],
)
def test_forged_files_are_rejected(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        parse_sbom("py:1", "a1", {}, content)


def test_a_file_survives_its_transport_in_a_report() -> None:
    content = json.dumps(CYCLONEDX).encode()
    assert unpack_sbom(pack_sbom(content)) == content
    with pytest.raises(InvalidRequest, match="too large"):
        pack_sbom(b"a" * (sbom.MAX_SBOM_BYTES + 1))


def packed(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a" * (sbom.MAX_PACKED_CHARACTERS + 1), "too long"),
        ("no base64!", "malformed"),
        (packed(b"not compressed"), "malformed"),
        (packed(zlib.compress(b"x" * 1000)[:-9]), "incomplete"),
        (packed(zlib.compress(b"\0" * (sbom.MAX_SBOM_BYTES + 1))), "too large"),
    ],
    ids=["long", "base64", "zlib", "truncated", "bomb"],
)
def test_forged_reports_are_rejected(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        unpack_sbom(text)


@pytest.mark.parametrize(
    "path", ["", "relative/file", "/a/../etc/shadow", "/a\nb", "/" + "a" * 2000]
)
def test_a_path_that_is_not_absolute_and_plain_is_no_sbom(path: str) -> None:
    assert sbom.sbom_path({sbom.SBOM_LABEL: path}) == ""
    assert sbom.sbom_path({sbom.SBOM_LABEL: "/usr/share/sbom/a.json"}) == "/usr/share/sbom/a.json"
