"""Make untrusted text safe for a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: object) -> str:
    """Replace control characters in ``text``, except for newlines and tabs.

    Names and messages come from other users: an escape sequence in them must not
    control the terminal of the user who lists them.
    """
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf") else "\ufffd"
        for letter in str(text)
    )
