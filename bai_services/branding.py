"""The brand that the web UI and the Hub's pages show: name, color and logo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_NAME = "bai-hub"
# White text on this color has a contrast of 6.2 : 1.
DEFAULT_COLOR = "#0958d9"
MAX_NAME_LENGTH = 40
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_LOGO_TYPES = frozenset({".svg", ".png", ".jpg", ".jpeg", ".webp"})


@dataclass(frozen=True, slots=True)
class Brand:
    """Name, color of buttons and links as #rrggbb, and image file of the logo.

    If ``logo`` is None, pages show the name instead.
    """

    name: str = DEFAULT_NAME
    color: str = DEFAULT_COLOR
    logo: Path | None = None

    @property
    def dark_color(self) -> str:
        """The color of a button under the pointer: 85 % of each component."""
        components = bytes.fromhex(self.color[1:])
        return "#" + bytes(component * 85 // 100 for component in components).hex()


def read_brand(environ: Mapping[str, str]) -> Brand:
    """Return the brand that the environment configures.

    Raises
    ------
    SystemExit
        If a variable is invalid; the message names it.
    """
    name = environ.get("BAI_BRAND_NAME", "").strip() or DEFAULT_NAME
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise SystemExit(f"BAI_BRAND_NAME must be at most {MAX_NAME_LENGTH} printable characters")
    color = environ.get("BAI_BRAND_COLOR") or DEFAULT_COLOR
    if not _COLOR.fullmatch(color):
        raise SystemExit(f"BAI_BRAND_COLOR must be #rrggbb, for example {DEFAULT_COLOR}")
    logo = Path(environ["BAI_BRAND_LOGO"]) if environ.get("BAI_BRAND_LOGO") else None
    if logo is not None and (logo.suffix.lower() not in _LOGO_TYPES or not logo.is_file()):
        types = ", ".join(sorted(_LOGO_TYPES))
        raise SystemExit(f"BAI_BRAND_LOGO: {logo} is not a readable image file ({types})")
    return Brand(name, color, logo)
