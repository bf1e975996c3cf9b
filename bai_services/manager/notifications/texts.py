"""Texts of events in the language and time zone of the recipient."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

from bai_services.core.coded_text import CodedText, Value
from bai_services.i18n.catalogue import DEFAULT, LANGUAGES, translator


def title_of(event: str, language: str) -> str:
    return translator(_known(language))(f"notification_events.{event}")


def text_of(text: CodedText, language: str, zone: ZoneInfo) -> str:
    """Return a text on one line, with times in the time zone ``zone``."""
    local = _localized(text, zone)
    chosen = _known(language)
    found = str(local)
    if chosen != DEFAULT:
        # A manager with a newer version may have stored a text that this version does not contain.
        with suppress(KeyError):
            found = local.format(translator(chosen).area("reasons"))
    return " ".join(found.split())


def _localized(text: CodedText, zone: ZoneInfo) -> CodedText:
    values = {name: _local(name, value, zone) for name, value in text.values.items()}
    return CodedText(text.code, values, tuple(_localized(part, zone) for part in text.parts))


def _local(name: str, value: Value, zone: ZoneInfo) -> Value:
    if not name.endswith("_at"):
        return value
    try:
        at = datetime.fromisoformat(str(value)).astimezone(zone)
    except ValueError:
        return value
    return f"{at:%Y-%m-%d %H:%M} ({zone.key})"


def _known(language: str) -> str:
    return language if language in LANGUAGES else DEFAULT


class Links:
    """URLs of pages of the web UI; empty if the public URL of the installation is not known."""

    def __init__(self, public_origin: str, base_url: str) -> None:
        self._prefix = f"{public_origin}{base_url.rstrip('/')}/" if public_origin else ""

    def url(self, path: str) -> str:
        """Return the URL of a path below the web UI."""
        return self._prefix + path if self._prefix else ""
