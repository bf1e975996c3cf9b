"""Every text key in the panel's sources has a text, and every text is used."""

from __future__ import annotations

import re
from pathlib import Path

from bai_labext.apps.running_apps import AppState
from bai_services.core.cluster.device_sharing import Level
from bai_services.core.sessions.lifecycle import Status
from bai_services.i18n.catalogue import translator

SOURCES = Path(__file__).resolve().parents[2] / "bai_labext" / "frontend" / "src"
SOURCE = "\n".join(path.read_text() for path in sorted(SOURCES.glob("*.ts*")))
# Keys that the sources compose at run time, which a search cannot find.
COMPOSED = {
    *(f"app-{state}" for state in AppState if state is not AppState.MISSING),
    *(f"enforcement-{level}" for level in (*Level, "unknown")),
    *(f"problem-{kind}" for kind in ("manager", "unreachable", "ended", "signed-out", "other")),
    *(f"planned-{after}" for after in ("requeue", "suspend", "end")),
    *(text for after in ("requeue", "suspend") for text in (f"away-{after}", f"{after}-now")),
    *(str(status) for status in Status),
}
TEXTS = translator("en").area("lab")


def test_every_used_key_has_a_text() -> None:
    used = set(re.findall(r"\bt\(\s*'([^']+)'", SOURCE))
    assert used | COMPOSED <= TEXTS.keys()


def test_every_text_is_used() -> None:
    quoted = set(re.findall(r"'([\w-]+)'", SOURCE))
    assert TEXTS.keys() - COMPOSED <= quoted
