"""Rules for one-time codes (TOTP, RFC 6238) and recovery codes, and their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ..errors import InvalidRequest, SignInRefused
from ..names import check_slug

DIGITS = 6
STEP_SECONDS = 30
# The codes of the previous and next step are also accepted, because phone clocks drift.
DRIFT_STEPS = 1
SECRET_BYTES = 20
RECOVERY_CODE_COUNT = 10
RECOVERY_CODE_LENGTH = 16
# Without the characters i, l, o, 0 and 1, which look alike.
RECOVERY_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_GROUP = 4

# Reasons for rejecting a sign-in with the correct password.
CODE_NEEDED = "need-one-time-code"
CODE_WRONG = "wrong-one-time-code"
REGISTRATION_NEEDED = "need-code-registration"


class CodeRule(StrEnum):
    """The rule of a domain for sign-ins with one-time codes."""

    OFF = "off"  # no codes; users cannot register an authenticator
    OPTIONAL = "optional"  # users decide
    REQUIRED = "required"  # users without an authenticator must register one when they sign in


@dataclass(frozen=True, slots=True)
class CodeRules:
    """Rules by domain; ``default`` applies to domains that are not in ``by_domain``."""

    default: CodeRule = CodeRule.OFF
    by_domain: Mapping[str, CodeRule] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> CodeRules:
        """Parse the default rule, optionally followed by rules for single domains.

        >>> rules = CodeRules.parse("optional, staff=required")
        >>> rules.of("staff").value, rules.of("students").value
        ('required', 'optional')

        Raises
        ------
        ValueError
            If the text contains an unknown rule, several rules for one domain, or a text that
            cannot be the name of a domain.
        """
        first, *others = (part.strip() for part in text.split(","))
        by_domain: dict[str, CodeRule] = {}
        for part in others:
            domain, separator, rule = (word.strip() for word in part.partition("="))
            if not separator or not domain or domain in by_domain:
                raise ValueError(f"{part!r} is not DOMAIN=RULE, or the domain has another rule")
            try:
                check_slug("domain", domain)
            except InvalidRequest as error:
                raise ValueError(error.message) from error
            by_domain[domain] = _rule(rule)
        return cls(_rule(first), by_domain)

    def of(self, domain: str) -> CodeRule:
        return self.by_domain.get(domain, self.default)


def _rule(text: str) -> CodeRule:
    try:
        return CodeRule(text)
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(CodeRule)}") from None


@dataclass(frozen=True, slots=True)
class SecondFactor:
    """The second factor that a caller sends.

    ``code`` is a one-time code or a recovery code. If the user has already sent the code in the
    same sign-in, the Hub sends ``proof`` instead.
    """

    code: str = field(default="", repr=False)
    proof: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTimeCodeState:
    """State of the caller's authenticator. ``rule`` is the rule of the caller's domain.

    ``has_password``: the caller has a password, which the registration of an authenticator
    requires.
    """

    rule: CodeRule
    has_password: bool
    is_registered: bool
    registered_at: datetime | None
    recovery_codes_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRegistration:
    """A secret for an authenticator; it takes effect when the user confirms it with a code.

    ``registration`` contains the encrypted secret and must be sent with the code.
    """

    secret: str = field(repr=False)
    uri: str = field(repr=False)
    qr_svg: str = field(repr=False)
    registration: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCodes:
    """New recovery codes; they are shown only once."""

    recovery_codes: Sequence[str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredAtSignIn(RecoveryCodes):
    """Recovery codes, and the ``proof`` that replaces the code in the rest of the sign-in."""

    proof: str = field(repr=False)


def canonical_code(text: str) -> str:
    """Return a typed code without spaces and hyphens, in lower case.

    >>> canonical_code(" 123 456"), canonical_code("ABCD-efgh")
    ('123456', 'abcdefgh')
    """
    return "".join(text.split()).replace("-", "").lower()


def is_one_time_code(code: str) -> bool:
    return len(code) == DIGITS and code.isascii() and code.isdigit()


def is_recovery_code(code: str) -> bool:
    return len(code) == RECOVERY_CODE_LENGTH and set(code) <= set(RECOVERY_ALPHABET)


def grouped(code: str) -> str:
    """Return a recovery code or a secret in groups of four characters.

    >>> grouped("abcdefghjkmnpqrs")
    'abcd-efgh-jkmn-pqrs'
    """
    return "-".join(code[i : i + _GROUP] for i in range(0, len(code), _GROUP))


def accepted_steps(unix_time: float) -> range:
    """Return the time steps with accepted codes at ``unix_time``.

    >>> list(accepted_steps(61))
    [1, 2, 3]
    """
    step = int(unix_time) // STEP_SECONDS
    return range(max(0, step - DRIFT_STEPS), step + DRIFT_STEPS + 1)


def code_needed(username: str) -> SignInRefused:
    return SignInRefused(
        "enter the code of your authenticator", reason=CODE_NEEDED, username=username
    )


def code_wrong(username: str) -> SignInRefused:
    return SignInRefused(
        "the code is wrong or was used already; wait for the next code",
        reason=CODE_WRONG,
        username=username,
    )
