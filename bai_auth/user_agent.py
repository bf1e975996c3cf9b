"""Browser and system in a User-Agent header, so that users recognize their sign-ins."""

from __future__ import annotations

# The order matters: for example, the header of Edge also contains `Chrome/` and `Safari/`.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS = (
    ("Windows", "Windows"),
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
UNKNOWN = "unknown browser"


def describe(user_agent: str) -> str:
    """Return browser and system as text.

    >>> describe("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0")
    'Firefox on Linux'
    >>> describe("curl/8.5.0")
    'unknown browser'
    """
    browser = next((name for word, name in _BROWSERS if word in user_agent), UNKNOWN)
    system = next((name for word, name in _SYSTEMS if word in user_agent), "")
    return f"{browser} on {system}" if system else browser
