"""Rules for free texts that other users read: descriptions, full names, file names.

A text must not change, reorder or imitate adjacent text. Invisible characters, and characters that
change the direction of text, are rejected in new texts; for new file names, see
``file_name_problem``. Programs can create files with any name, so pages and the command line show
such characters as codes.
"""

from __future__ import annotations

import unicodedata

# Maximum number of combining marks of a letter: more would cover adjacent lines. Thai and
# Vietnamese need up to three.
MAX_COMBINING_MARKS = 8

# Embeddings, overrides and isolates (Unicode Standard Annex 9).
_DIRECTION = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_LINE_BREAKS = frozenset("\u2028\u2029")
_JOINERS = frozenset("\u200c\u200d")
# Letters, marks and symbols without a glyph, such as fillers and the empty braille pattern.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Variation selectors 1 to 16. They do not count as combining marks.
_SELECTORS = range(0xFE00, 0xFE10)


def text_problem(text: str, *, is_multiline: bool = False) -> str:
    """Return why a text must not be shown to other users, and what to do; "" if it is allowed.

    A joiner is accepted after a letter, mark, number or symbol if another character follows: emoji
    and several scripts need joiners.
    ``is_multiline``: line breaks and tabs are accepted.
    """
    marks = 0
    previous = " "
    for position, letter in enumerate(text, 1):
        category = unicodedata.category(letter)
        if category not in ("Mn", "Me"):
            marks = 0
        elif ord(letter) not in _SELECTORS:
            marks += 1
        if marks > MAX_COMBINING_MARKS:
            return (
                f"character {position} is the {marks}th combining mark of one letter; "
                f"at most {MAX_COMBINING_MARKS} are allowed: remove the others"
            )
        if letter in _JOINERS:
            is_last = position == len(text)
            is_accepted = not is_last and unicodedata.category(previous)[0] in "LMNS"
        elif letter in "\n\t":
            is_accepted = is_multiline
        else:
            is_accepted = not _is_hidden(letter, category)
        if not is_accepted:
            return f"{_described(letter)} at position {position} is not allowed: remove it"
        previous = letter
    return ""


def file_name_problem(path: str) -> str:
    """Return why a new file cannot be created at ``path``, and what to do; "" if it can be created.

    Only characters that break lines, control a terminal or reorder text are rejected. Other
    invisible characters are allowed, because existing files with such names must be uploadable.
    """
    for position, letter in enumerate(path, 1):
        if unicodedata.category(letter) == "Cc" or letter in _DIRECTION or letter in _LINE_BREAKS:
            return f"{_described(letter)} at position {position} is not allowed: rename the file"
    return ""


def _is_hidden(letter: str, category: str) -> bool:
    """Return whether a character is displayed without a glyph. Spaces do not count as hidden."""
    return category in ("Cc", "Cf", "Cs", "Zl", "Zp") or letter in _BLANK_LETTERS


def _described(letter: str) -> str:
    code = f"U+{ord(letter):04X}"
    if unicodedata.category(letter) == "Cc":
        return f"the control character {code}"
    if letter in _DIRECTION:
        return f"the character {code}, which changes the direction of text,"
    return f"the invisible character {code}"
