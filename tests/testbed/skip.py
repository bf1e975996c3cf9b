"""Skip a test whose component is missing, or fail it if ``BAI_REQUIRE`` names the component."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_or_fail(component: str, reason: object) -> NoReturn:
    """Skip the test because ``component`` is missing, or fail it if the component is required."""
    required = {name.strip() for name in os.environ.get("BAI_REQUIRE", "").split(",")}
    if component in required:
        pytest.fail(f"{component} is required (BAI_REQUIRE) but missing: {reason}", pytrace=False)
    pytest.skip(f"{component}: {reason}")
