"""Ports of a session: named ports, their reachability, and messages about unreachable ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

from bai_labext.apps.apps import Offer
from bai_labext.apps.catalogue import BY_NAME_OR_ALIAS, App
from bai_labext.listeners import Listener, listeners
from bai_services.core.apps.catalogue import OPENABLE, PORTS, AppKind
from bai_services.core.cluster.image_labels import parse_service_ports
from bai_services.core.errors import InvalidRequest
from bai_services.core.user_input import read_whole

# Maximum number of other ports that the message about an unreachable port suggests.
MAX_HINTS = 3
CACHE_TTL_SECONDS = 2.0
CONNECT_TIMEOUT_SECONDS = 1.0


def named_ports(environ: Mapping[str, str]) -> list[Offer]:
    """Return one app offer per named port.

    Named ports are those in the image's label and those requested for the session.
    ``BAI_SERVICE_PORTS`` contains the label, ``BAI_PREOPEN_PORTS`` the requested port numbers,
    separated by commas. Skip a labelled port if a browser cannot open its protocol, or if its
    name belongs to a catalogue app of another kind.
    """
    offers: dict[int, Offer] = {}
    try:
        labelled = parse_service_ports(environ.get("BAI_SERVICE_PORTS", ""))
    except InvalidRequest:
        labelled = ()
    for service in labelled:
        known = BY_NAME_OR_ALIAS.get(service.name)
        if service.protocol not in OPENABLE or (
            known is not None and known.kind is not AppKind.PORT
        ):
            continue
        for number in service.ports:
            name = service.name if len(service.ports) == 1 else f"{service.name}-{number}"
            title = known.title if known is not None else name
            offers[number] = Offer(_port_app(name, title, number), port=number)
    for word in environ.get("BAI_PREOPEN_PORTS", "").split(","):
        preopened = read_whole(word)
        if preopened is not None:
            app = _port_app(f"port-{preopened}", f"Port {preopened}", preopened)
            offers.setdefault(preopened, Offer(app, port=preopened))
    return list(offers.values())


def _port_app(name: str, title: str, number: int) -> App:
    path = f"proxy/{number}/"
    return App(
        name=name,
        title=title,
        category=PORTS,
        kind=AppKind.PORT,
        path=path,
        ready_path=path,
        port=number,
    )


def is_reachable(port: int, current: Iterable[Listener]) -> bool:
    """Return whether one of the current listeners accepts loopback connections to a port."""
    return any(each.port == port and each.is_reachable for each in current)


async def ready_host(port: int, current: Iterable[Listener]) -> str:
    """Return the loopback address of a port, preferably IPv4; empty if it is not reachable."""
    matching = [each for each in current if each.port == port and each.is_reachable]
    if not matching:
        return ""
    if any(each.address.version == 4 for each in matching):
        return "127.0.0.1"
    # Only a connection shows whether an IPv6 socket also accepts IPv4.
    return "127.0.0.1" if await _accepts_connection("127.0.0.1", port) else "::1"


class Hosts:
    """The host for connections to each port, cached for ``CACHE_TTL_SECONDS``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cache: dict[int, tuple[float, str]] = {}

    async def of(self, port: int) -> str:
        """Return the host of a port for a URL: ``[::1]`` for IPv6 only, else ``localhost``."""
        at, host = self._cache.get(port, (float("-inf"), ""))
        if self._clock() - at >= CACHE_TTL_SECONDS:
            address = await ready_host(port, listeners())
            host = f"[{address}]" if ":" in address else "localhost"
            self._cache = {p: k for p, k in self._cache.items() if self._clock() - k[0] < 60}
            self._cache[port] = (self._clock(), host)
        return host


async def _accepts_connection(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # includes TimeoutError
        return False
    writer.close()
    return True


def port_problem(port: int, current: Iterable[Listener], named: Iterable[int]) -> str:
    """Return why a port cannot be opened, and suggest listening ports that are not ``named``."""
    all_listeners = list(current)
    addresses = sorted({str(each.address) for each in all_listeners if each.port == port})
    if addresses:
        return (
            f"The program on port {port} accepts connections to {', '.join(addresses)} only; "
            "make it listen on 127.0.0.1 or 0.0.0.0."
        )
    excluded = {port, *named}
    others = sorted({e.port for e in all_listeners if e.is_reachable and e.port not in excluded})
    hint = ""
    if others:
        listed = ", ".join(map(str, others[:MAX_HINTS]))
        hint = f" Your programs listen on {listed}."
    return f"Nothing listens on port {port} yet.{hint}"
