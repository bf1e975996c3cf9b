"""Loads the translation files and hands out translators."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Protocol

# Each name in its own language, as a person who cannot read the page looks for it.
LANGUAGES: Mapping[str, str] = {"en": "English", "ko": "한국어", "ja": "日本語", "th": "ไทย"}
DEFAULT = "en"
COOKIE = "bai_lang"
ARGUMENT = "lang"

Text = str | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Translator:
    """Gives the text of a key in one language; call it.

    ``translate("sign_in.blocked", count=3)`` fills ``{count}`` and, where the
    file has the forms ``one`` and ``other``, picks by ``count``. A key that is
    missing in the language gives the English text; missing there too, the key
    itself: a page never breaks for want of a text.
    """

    language: str
    texts: Mapping[str, Text] = field(repr=False)

    def __call__(self, key: str, **values: object) -> str:
        text = self.texts.get(key)
        if text is None:
            return key if self.language == DEFAULT else translator(DEFAULT)(key, **values)
        if not isinstance(text, str):
            text = text["one" if values.get("count") == 1 else "other"]
        return text.format_map(values) if values else text

    def area(self, name: str) -> dict[str, str]:
        """Return the plain texts of one area, without their prefix, for a page's script."""
        start = name + "."
        texts = {**translator(DEFAULT).texts, **self.texts}
        return {
            key.removeprefix(start): text
            for key, text in texts.items()
            if key.startswith(start) and isinstance(text, str)
        }


@functools.cache
def translator(language: str) -> Translator:
    """Return the translator of one of ``LANGUAGES``; files are read once.

    A file ``LANGUAGE/AREA.json`` holds a flat map; its key ``KEY`` is asked for as
    ``AREA.KEY``.
    """
    texts: dict[str, Text] = {}
    for file in resources.files(__package__).joinpath(language).iterdir():
        if file.name.endswith(".json"):
            area = file.name.removesuffix(".json")
            content = json.loads(file.read_text(encoding="utf-8"))
            texts.update({f"{area}.{key}": text for key, text in content.items()})
    return Translator(language, texts)


def pick_language(chosen: str = "", accept_language: str = "") -> str:
    """Return the language of a page: the one ``chosen``, else the best the browser accepts.

    ``chosen`` is what the person picked (unknown values count as none);
    ``accept_language`` is the header, read with its weights; ties go to the
    first named. English where nothing fits.
    """
    if chosen in LANGUAGES:
        return chosen
    wanted: list[tuple[float, str]] = []
    for part in accept_language.split(","):
        tag, _, parameter = part.strip().partition(";")
        language = tag.strip().lower().partition("-")[0]
        weight = _weight(parameter)
        if language in LANGUAGES and weight > 0:
            wanted.append((weight, language))
    return max(wanted, key=lambda item: item[0], default=(0.0, DEFAULT))[1]


def _weight(parameter: str) -> float:
    name, _, value = parameter.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


class _Headers(Protocol):
    def get(self, name: str, default: str, /) -> str: ...


class _Request(Protocol):
    headers: _Headers


class WebHandler(Protocol):
    """What is used of tornado's ``RequestHandler``."""

    request: _Request

    def get_query_argument(self, name: str, default: str, /) -> str: ...
    def get_cookie(self, name: str, default: str, /) -> str: ...


def translator_for(handler: WebHandler) -> Translator:
    """Return the translator for the person behind a request.

    ``?lang=`` decides, then the cookie ``bai_lang``, then ``Accept-Language``.
    """
    asked = handler.get_query_argument(ARGUMENT, "")
    chosen = asked if asked in LANGUAGES else handler.get_cookie(COOKIE, "")
    return translator(pick_language(chosen, handler.request.headers.get("Accept-Language", "")))
