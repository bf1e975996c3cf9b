"""Ports of a session: named ports, what listens there, and why one cannot be opened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from bai_labext.apps.apps import Offer
from bai_labext.apps.catalogue import BY_ANY_NAME, App, AppKind
from bai_labext.listeners import Listener, listeners
from bai_services.core.cluster.image_labels import Protocol, parse_service_ports
from bai_services.core.errors import InvalidRequest
from bai_services.core.user_input import read_whole

CATEGORY = "Ports"
# The most listening ports that the message about a wrong port suggests.
MAX_HINTS = 3
KNOWN_SECONDS = 2.0
CONNECT_SECONDS = 1.0
OPENABLE = frozenset({Protocol.HTTP, Protocol.PREOPEN})


def named_ports(environ: Mapping[str, str]) -> list[Offer]:
    """Return the apps that listen by themselves, from the image's label and the session's request.

    ``BAI_SERVICE_PORTS`` is the label, ``BAI_PREOPEN_PORTS`` contains numbers separated by commas.
    """
    found: dict[int, Offer] = {}
    try:
        labelled = parse_service_ports(environ.get("BAI_SERVICE_PORTS", ""))
    except InvalidRequest:
        labelled = ()
    for service in labelled:
        known = BY_ANY_NAME.get(service.name)
        if service.protocol not in OPENABLE or (
            known is not None and known.kind is not AppKind.PORT
        ):
            continue
        for number in service.ports:
            name = service.name if len(service.ports) == 1 else f"{service.name}-{number}"
            title = known.title if known is not None else name
            found[number] = Offer(_port_app(name, title, number), port=number)
    for word in environ.get("BAI_PREOPEN_PORTS", "").split(","):
        preopened = read_whole(word)
        if preopened is not None:
            app = _port_app(f"port-{preopened}", f"Port {preopened}", preopened)
            found.setdefault(preopened, Offer(app, port=preopened))
    return list(found.values())


def _port_app(name: str, title: str, number: int) -> App:
    path = f"proxy/{number}/"
    return App(
        name=name,
        title=title,
        category=CATEGORY,
        kind=AppKind.PORT,
        path=path,
        ready_path=path,
        port=number,
    )


def is_reachable(port: int, found: Iterable[Listener]) -> bool:
    """Return whether something listens on a port of the loopback interface."""
    return any(each.port == port and each.is_reachable for each in found)


async def ready_host(port: int, found: Iterable[Listener]) -> str:
    """Return the loopback address at which a port answers; empty if nothing listens on it.

    IPv4 if both do, because clients without a name for the host try that first.
    """
    mine = [each for each in found if each.port == port and each.is_reachable]
    if not mine:
        return ""
    if any(each.address.version == 4 for each in mine):
        return "127.0.0.1"
    # An IPv6 socket also accepts IPv4 unless it is IPv6-only; only a connection attempt tells.
    return "127.0.0.1" if await _answers("127.0.0.1", port) else "::1"


class Hosts:
    """The address at which each port answers, cached for ``KNOWN_SECONDS``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[int, tuple[float, str]] = {}

    async def of(self, port: int) -> str:
        """Return the host of a port in the form for URLs; ``localhost`` if unknown."""
        at, host = self._known.get(port, (float("-inf"), ""))
        if self._clock() - at >= KNOWN_SECONDS:
            found = await ready_host(port, listeners())
            host = f"[{found}]" if ":" in found else "localhost"
            self._known = {p: k for p, k in self._known.items() if self._clock() - k[0] < 60}
            self._known[port] = (self._clock(), host)
        return host


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # includes TimeoutError
        return False
    writer.close()
    return True


def why_not(port: int, found: Iterable[Listener], known: Iterable[int]) -> str:
    """Return why a port cannot be opened, and which other ports something listens on."""
    everything = list(found)
    elsewhere = sorted({str(each.address) for each in everything if each.port == port})
    if elsewhere:
        return (
            f"What listens on port {port} accepts connections to {', '.join(elsewhere)} only; "
            "make it listen on 127.0.0.1 or 0.0.0.0."
        )
    expected = set(known)
    others = sorted(
        {e.port for e in everything if e.is_reachable and e.port not in expected | {port}}
    )
    hint = ""
    if others:
        listed = ", ".join(map(str, others[:MAX_HINTS]))
        hint = f" Your programs listen on {listed}."
    return f"Nothing listens on port {port} yet.{hint}"
