"""Text that came from elsewhere, made safe for a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: object) -> str:
    """Return ``text`` without control characters other than line ends and tabs.

    A name or a message comes from other people: an escape sequence in it must
    not move the cursor or rename the window of whoever lists it.
    """
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf") else "\ufffd"
        for letter in str(text)
    )
