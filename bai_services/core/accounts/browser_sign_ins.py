"""Notes of browser sign-ins in the Hub's token table: browser, system and address."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "Browser sign-in: "
MAX_NOTE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class SignInNote:
    """``program``: browser and system, such as ``Firefox on Linux``. ``address`` can be empty."""

    program: str
    address: str


def note_of(program: str, address: str) -> str:
    """Return the note of a sign-in, cut off after 200 characters."""
    text = PREFIX + ", ".join(part for part in (program, address) if part)
    return text[:MAX_NOTE_CHARACTERS]


def parse_note(note: str) -> SignInNote | None:
    """Parse the note of a browser sign-in; return None for the note of any other token.

    >>> parse_note("Browser sign-in: Firefox on Linux, 192.0.2.1")
    SignInNote(program='Firefox on Linux', address='192.0.2.1')
    """
    if not note.startswith(PREFIX):
        return None
    program, _, address = note.removeprefix(PREFIX).partition(", ")
    return SignInNote(program, address)
