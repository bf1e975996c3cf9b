"""The web UI describes every setting that superadmins can change there."""

from __future__ import annotations

import json
from pathlib import Path

from bai_services.core.operations.configuration import CHANGEABLE

TEXTS = Path(__file__).parents[1] / "bai_services/webui/frontend/src/i18n/en/configuration.json"


def test_every_changeable_setting_has_a_description() -> None:
    prefix = "about-"
    described = {key.removeprefix(prefix) for key in json.loads(TEXTS.read_text()) if prefix in key}
    assert described == {setting.variable for setting in CHANGEABLE}
