"""Sign-up: records, and the rules of an installation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ..errors import InvalidRequest
from ..user_input import shown

MAX_INVITATION_DAYS = 365
MAX_INVITATION_USES = 10_000

# What the user must do next: open the link in a mail, wait for an administrator, or sign in.
NextStep = Literal["verify-email", "await-approval", "sign-in"]


@dataclass(frozen=True, slots=True)
class SignUpRules:
    """The operator's rules for sign-up. ``domain``: domain of accounts without an invitation."""

    domain: str
    needs_invitation: bool
    verifies_email: bool
    needs_approval: bool
    email_domains: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SignUpForm:
    """The fields of a sign-up request. ``consents``: the documents to which the user has agreed."""

    username: str
    email: str
    full_name: str
    password: str = field(repr=False)
    invitation: str = field(default="", repr=False)
    consents: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PendingSignUp:
    """A sign-up that has no account yet."""

    id: str
    username: str
    email: str
    full_name: str
    password_hash: str = field(repr=False)
    domain: str
    invitation_id: str | None
    needs_approval: bool
    consents: Sequence[str]


@dataclass(frozen=True, slots=True)
class SignUpInvitation:
    """An invitation to sign up; ``project`` is None for the project ``default`` of the domain."""

    id: str
    created_at: datetime
    created_by: str
    description: str
    domain: str
    project: str | None
    max_uses: int
    uses: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class CreatedSignUpInvitation(SignUpInvitation):
    """A new invitation with its ``token``, which no later response contains."""

    token: str = field(repr=False)


def check_email_domain(email: str, allowed: Sequence[str]) -> None:
    """Raise ``InvalidRequest`` unless ``allowed`` is empty or contains the domain of ``email``.

    >>> check_email_domain("a@example.org", ["example.org"])
    >>> check_email_domain("a@sub.example.org", ["*.example.org"])
    >>> check_email_domain("a@notexample.org", ["example.org", "*.example.org"])
    Traceback (most recent call last):
      ...
    bai_services.core.errors.InvalidRequest: addresses at notexample.org may not sign up here
    """
    domain = email.rpartition("@")[2].lower()
    for one in allowed:
        pattern = one.lower()
        is_below = pattern.startswith("*.") and domain.endswith(pattern[1:])
        if domain == pattern or is_below:
            return
    if allowed:
        raise InvalidRequest(
            f"addresses at {shown(domain)} may not sign up here",
            field="email",
            reason="email-domain",
        )
