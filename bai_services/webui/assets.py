"""The built files of the web UI, read once into memory.

The build adds a hash of the content to the names of the files in ``assets``, and writes a gzip and
a brotli variant next to each text file.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parent / "dist"
INDEX = "index.html"
# The file name suffix of each content encoding, the preferred encoding first.
ENCODINGS: Mapping[str, str] = {"br": ".br", "gzip": ".gz"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its media type, and its content by content encoding ("" is the plain file)."""

    media_type: str
    variants: Mapping[str, bytes]

    def best(self, accept_encoding: str) -> tuple[str, bytes]:
        """Return the encoding and the content for a client's ``Accept-Encoding`` header."""
        parts = [part.partition(";") for part in accept_encoding.replace(" ", "").split(",")]
        accepted = {name for name, _, weight in parts if not _ZERO.fullmatch(weight)}
        name = next((n for n in ENCODINGS if n in accepted and n in self.variants), "")
        return name, self.variants[name]


# The weight of an encoding that the client does not accept.
_ZERO = re.compile(r"q=0(\.0*)?")


@dataclass(frozen=True, slots=True)
class WebUI:
    """The page and its files, by path below the UI's base URL."""

    index: str
    assets: Mapping[str, Asset]

    @classmethod
    def load(cls, directory: Path = DIRECTORY) -> WebUI | None:
        """Return the built UI; None if it was not built."""
        if not (directory / INDEX).is_file():
            return None
        suffixes = tuple(ENCODINGS.values())
        paths = [p for p in (directory / "assets").iterdir() if not p.name.endswith(suffixes)]
        return cls(
            (directory / INDEX).read_text(encoding="utf-8"),
            {f"assets/{path.name}": _read(path) for path in paths},
        )


def _read(path: Path) -> Asset:
    variants = {"": path.read_bytes()}
    for name, suffix in ENCODINGS.items():
        compressed = path.with_name(path.name + suffix)
        if compressed.is_file():
            variants[name] = compressed.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Asset(media_type, variants)
