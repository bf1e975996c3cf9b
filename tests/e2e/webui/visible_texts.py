"""Check the visible texts of a page: missing texts, texts in English, texts outside their box."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page

ROOT = Path(__file__).resolve().parents[3]
FRONTEND = ROOT / "bai_services/webui/frontend"
# The texts of the web UI, and those of the Hub's pages.
WEB_UI, HUB = FRONTEND / "src/i18n", ROOT / "bai_services/i18n"
ANTD = FRONTEND / "node_modules"
ANTD_LOCALES = (
    "antd/es/locale",
    "@rc-component/pagination/es/locale",
    "@rc-component/picker/es/locale",
)

# The longest parts of a text that can be keys, such as ``sessions.stop``.
WORD = re.compile(r"[\w./-]+")
# A word, followed by at least two words in lower case: a part of a sentence, not a name.
SENTENCE = re.compile(r"\b[A-Za-z]{2,}(?: [a-z']{2,}){2,}")
# Product names and technical terms that are the same in every language.
SAME_IN_EVERY_LANGUAGE = frozenset(
    ("English", "OK", "SSH", "SFTP", "sshfs", "VS", "CPU", "GPU", "API", "CSV", "CIDR", "ID")
    + ("PEM", "URL", "JupyterLab", "TensorBoard")
)

# Returns the visible texts, and messages about texts that do not fit their boxes. After a resize,
# the layout needs some time, so the check is repeated for up to MAX_MILLIS while texts do not fit.
READ_TEXTS = """
async () => {
  const MAX_MILLIS = 1000;
  const hidden = '.bai-hidden-text, .bai-skip:not(:focus), svg, canvas, script, style, noscript,'
    + ' template, .visually-hidden, .sr-only, code, pre, [role=log]';
  // AntD tabs outside of their box are not lost: users reach them with a gesture or in a menu.
  const isScrolling = (at, style) =>
    /auto|scroll/.test(style.overflowX) || at.classList.contains('ant-tabs-nav-wrap');
  // What `problem` needs to know about an element. Many texts have the same ancestors.
  const measure = at => {
    const style = getComputedStyle(at);
    const area = at.getBoundingClientRect();
    return {
      isScrolling: isScrolling(at, style),
      isShortening: style.textOverflow === 'ellipsis' || style.webkitLineClamp !== 'none',
      isBox: style.display !== 'inline' && area.width > 0,
      isPositioned: style.position === 'fixed' || style.position === 'absolute',
      left: area.left,
      right: area.right
    };
  };
  let measured = new Map();
  const measurements = at => {
    if (!measured.has(at)) measured.set(at, measure(at));
    return measured.get(at);
  };
  const problem = node => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    let wrong = '';
    for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
      const area = measurements(at);
      if (area.isScrolling) return '';
      if (area.isShortening) {
        // A shortened text must be complete in a tooltip.
        const isShortened = at.scrollWidth > at.clientWidth + 1
          || at.scrollHeight > at.clientHeight + 1;
        const hasTitle = at.closest('[title], [aria-label]') ?? at.querySelector('[title]');
        return isShortened && !hasTitle ? 'is shortened without a title' : '';
      }
      if (area.isBox) {
        const by = Math.round(Math.max(box.right - area.right, area.left - box.left));
        if (by > 1) wrong ||= `is ${by} px outside <${at.localName} class="${at.className}">`;
      }
      if (area.isPositioned) break;
    }
    return wrong;
  };
  const read = () => {
    const texts = [], outside = [];
    measured = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const at = node.parentElement, text = node.textContent.trim();
      if (!text || at.closest(hidden)) continue;
      if (!at.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
      const box = at.getBoundingClientRect();
      if (box.width <= 1 || box.height <= 1) continue;
      texts.push(text);
      const wrong = problem(node);
      if (wrong) outside.push(`"${text.slice(0, 60)}" ${wrong}`);
    }
    for (const at of document.querySelectorAll('[aria-label], [title], [placeholder], img[alt]')) {
      if (!at.checkVisibility({visibilityProperty: true})) continue;
      for (const name of ['aria-label', 'title', 'placeholder', 'alt']) {
        const text = at.getAttribute(name)?.trim();
        // AntD itself gives its icons English names, which cannot be translated.
        if (text && !(name === 'aria-label' && at.classList.contains('anticon'))) texts.push(text);
      }
    }
    const width = document.documentElement.scrollWidth;
    if (width > document.documentElement.clientWidth) outside.push(`the page is ${width} px wide`);
    return {texts, outside};
  };
  const start = performance.now();
  let found = read();
  // A reading of a large page takes longer than a frame.
  for (let pause = 20; found.outside.length && performance.now() - start < MAX_MILLIS; pause *= 2) {
    await new Promise(resolve => setTimeout(resolve, pause));
    found = read();
  }
  return found;
}
"""


@dataclass(frozen=True, slots=True)
class Language:
    """The texts of one language, and how to recognize a text that is still in English."""

    name: str
    # Texts by their keys, such as ``sessions.stop``.
    texts: Mapping[str, str]
    keys: frozenset[str]
    english: frozenset[str]

    def __call__(self, key: str, **values: str) -> str:
        """Return the text of a key of the web UI, with its placeholders filled in."""
        text = self.texts[key]
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
        return text

    def problems(self, texts: Iterable[str], allowed: Iterable[str] = ()) -> list[str]:
        """Return messages about keys that are shown as texts, and about texts in English.

        ``allowed`` are regular expressions for texts that may be in English, such as names.
        """
        found = []
        ours = set(self.texts.values())
        for text in dict.fromkeys(texts):
            if not self.keys.isdisjoint(WORD.findall(text)):
                found.append(f"the key {text!r}")
            if self.name == "en" or any(re.search(pattern, text) for pattern in allowed):
                continue
            if (text in self.english and text not in ours) or SENTENCE.search(text):
                found.append(f"in English: {text!r}")
        return found


def _read(folder: Path) -> dict[str, str]:
    return {
        f"{path.stem}.{name}": text
        for path in sorted(folder.glob("*.json"))
        for name, text in json.loads(path.read_text("utf-8")).items()
        if isinstance(text, str)
    }


@cache
def language(name: str) -> Language:
    english = {**_read(HUB / "en"), **_read(WEB_UI / "en")}
    keys = frozenset(english)
    assert all(map(WORD.fullmatch, keys)), "a key contains other characters"
    foreign = {text for text in english.values() if re.search("[a-z]{2}", text)}
    for folder in ANTD_LOCALES:
        source = (ANTD / folder / "en_US.js").read_text("utf-8")
        foreign |= {text for text in re.findall(r": '([^'$]+)'", source) if text[0].isupper()}
    return Language(
        name,
        {**_read(HUB / name), **_read(WEB_UI / name)},
        keys,
        frozenset(foreign - SAME_IN_EVERY_LANGUAGE),
    )


async def problems(page: Page, shown_in: Language, allowed: Iterable[str] = ()) -> list[str]:
    """Return messages about the visible texts that are keys, in English or cut off."""
    found: dict[str, Any] = await page.evaluate(READ_TEXTS)
    return shown_in.problems(found["texts"], allowed) + list(dict.fromkeys(found["outside"]))
