"""What a test does when a real part is missing: skip, or fail where the part is required."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(part: str, reason: object) -> NoReturn:
    """Skip the test for lack of ``part``, or fail it where ``BAI_REQUIRE`` names the part."""
    required = {name.strip() for name in os.environ.get("BAI_REQUIRE", "").split(",")}
    if part in required:
        pytest.fail(f"{part} is required (BAI_REQUIRE) but missing: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")
