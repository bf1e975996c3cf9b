"""Permissions on storage hosts."""

from __future__ import annotations

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.storage_hosts import PERMISSIONS, check_hosts


def test_host_permissions_are_validated_and_ordered() -> None:
    given = {"local": ["upload-file", "create-vfolder", "upload-file"]}
    assert check_hosts(given) == {"local": ["create-vfolder", "upload-file"]}
    assert check_hosts({"local": list(reversed(PERMISSIONS))}) == {"local": list(PERMISSIONS)}
    with pytest.raises(InvalidRequest, match="fly is not a permission"):
        check_hosts({"local": ["fly"]})
    for host in ("", "x" * 65):
        with pytest.raises(InvalidRequest, match="1 to 64 characters"):
            check_hosts({host: ["upload-file"]})
