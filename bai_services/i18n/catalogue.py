"""Translations of our pages: load the files, choose a language, translate keys."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Protocol

# Each name is in its own language, for users who cannot read the current language of the page.
LANGUAGES: Mapping[str, str] = {"en": "English", "ko": "한국어", "ja": "日本語", "th": "ไทย"}
DEFAULT = "en"
COOKIE = "bai_lang"
ARGUMENT = "lang"

Text = str | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Translator:
    """Translates keys to one language: ``translate("sign_in.blocked_minutes", count=3)``.

    Replaces placeholders such as ``{count}``. A text may have the plural forms ``one`` and
    ``other``; the value of ``count`` then selects the form. If only English has the key, the result
    is the English text. The result for an unknown key is the key itself.
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
        """Return the texts of one file by key, without the prefix ``AREA.``.

        Texts with plural forms are left out.
        """
        prefix = name + "."
        texts = {**translator(DEFAULT).texts, **self.texts}
        return {
            key.removeprefix(prefix): text
            for key, text in texts.items()
            if key.startswith(prefix) and isinstance(text, str)
        }


@functools.cache
def translator(language: str) -> Translator:
    """Return the translator for one of ``LANGUAGES``; each file is read once.

    The key ``KEY`` of the file ``LANGUAGE/AREA.json`` is addressed as ``AREA.KEY``.
    """
    texts: dict[str, Text] = {}
    for file in resources.files(__package__).joinpath(language).iterdir():
        if file.name.endswith(".json"):
            area = file.name.removesuffix(".json")
            content = json.loads(file.read_text(encoding="utf-8"))
            texts.update({f"{area}.{key}": text for key, text in content.items()})
    return Translator(language, texts)


def pick_language(chosen: str = "", accept_language: str = "") -> str:
    """Return the language of a page: ``chosen`` if supported, else the browser's preference.

    ``accept_language`` is the Accept-Language header; among languages of equal weight the first
    wins. The default is English.
    """
    if chosen in LANGUAGES:
        return chosen
    candidates: list[tuple[float, str]] = []
    for part in accept_language.split(","):
        tag, _, parameter = part.strip().partition(";")
        language = tag.strip().lower().partition("-")[0]
        weight = _weight(parameter)
        if language in LANGUAGES and weight > 0:
            candidates.append((weight, language))
    return max(candidates, key=lambda item: item[0], default=(0.0, DEFAULT))[1]


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
    """The part of tornado's ``RequestHandler`` that ``translator_for`` uses."""

    request: _Request

    def get_query_argument(self, name: str, default: str, /) -> str: ...
    def get_cookie(self, name: str, default: str, /) -> str: ...


def translator_for(handler: WebHandler) -> Translator:
    """Return the translator for the user of a request.

    The language comes from ``?lang=``, else from the cookie ``bai_lang``, else from
    ``Accept-Language``.
    """
    argument = handler.get_query_argument(ARGUMENT, "")
    chosen = argument if argument in LANGUAGES else handler.get_cookie(COOKIE, "")
    return translator(pick_language(chosen, handler.request.headers.get("Accept-Language", "")))
