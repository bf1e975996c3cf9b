"""Order of pending sessions (step 2 of a pass): priority, then the order of the resource group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace

from .model import Order, Party
from .shape import Shape

# Sort key of a party (see ``model.Party``) within one priority. It is empty for fifo and lifo;
# otherwise a smaller key is earlier.
Standing = tuple[float, ...]


class _Lane:
    """Heap of the shapes of one party (for fifo and lifo: of all parties) at one priority."""

    __slots__ = ("party", "priority", "shapes")

    def __init__(self, priority: int, party: Party) -> None:
        self.priority = priority
        self.party = party
        self.shapes: list[tuple[int, int, Shape]] = []


class Turns:
    """Iterator over pending sessions in order; the caller places sessions or skips their shapes.

    ``standing`` returns the current standing of a party. A party's standing must never decrease
    during the iteration.
    """

    def __init__(
        self,
        shapes: Iterable[Shape],
        order: Order,
        standing: Callable[[Party], Standing],
        *,
        before: Turns | None = None,
    ) -> None:
        """Sort the shapes. Within each shape, start at the position that ``before`` has reached."""
        self._sign = -1 if order is Order.LIFO else 1
        self._shared = order in (Order.FIFO, Order.LIFO)
        self._standing = standing
        self._next: dict[int, int] = {} if before is None else before._next
        lanes: dict[tuple[int, Party], _Lane] = {}
        for shape in shapes:
            at = self._next.get(shape.number, 0)
            if at >= len(shape.members):
                continue
            party: Party = () if self._shared else shape.party
            key = (shape.priority, party)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = _Lane(*key)
            lane.shapes.append((self._sequence(shape, at), shape.number, shape))
        for lane in lanes.values():
            heapify(lane.shapes)
        self._heap = [(self._key(lane), n, lane) for n, lane in enumerate(lanes.values())]
        heapify(self._heap)

    def _sequence(self, shape: Shape, at: int) -> int:
        members = shape.members
        return members[at][0] if self._sign > 0 else -members[-1 - at][0]

    def _key(self, lane: _Lane) -> tuple[float, ...]:
        standing = () if self._shared else self._standing(lane.party)
        return (-lane.priority, *standing, lane.shapes[0][0])

    def peek(self) -> Shape | None:
        """Return the shape of the next session; None if no session remains."""
        while self._heap:
            key, n, lane = self._heap[0]
            if self._shared:
                return lane.shapes[0][2]
            now = self._key(lane)
            if now == key:
                return lane.shapes[0][2]
            heapreplace(self._heap, (now, n, lane))
        return None

    def key_of(self, shape: Shape) -> int | None:
        """Return the sort key of the next session of a shape; None if no session remains."""
        at = self._next.get(shape.number, 0)
        return self._sequence(shape, at) if at < len(shape.members) else None

    def session(self, shape: Shape) -> tuple[int, str]:
        """Return (sequence, id) of the next session of a shape."""
        at = self._next.get(shape.number, 0)
        return shape.members[at] if self._sign > 0 else shape.members[-1 - at]

    def advance(self) -> None:
        """Advance by one session; sort its shape by the key of the shape's next session."""
        _, n, lane = self._heap[0]
        shape = lane.shapes[0][2]
        at = self._next[shape.number] = self._next.get(shape.number, 0) + 1
        if at < len(shape.members):
            heapreplace(lane.shapes, (self._sequence(shape, at), shape.number, shape))
            heapreplace(self._heap, (self._key(lane), n, lane))
        else:
            self.drop()

    def drop(self) -> None:
        """Skip the remaining sessions of the next shape."""
        _, n, lane = self._heap[0]
        heappop(lane.shapes)
        if lane.shapes:
            heapreplace(self._heap, (self._key(lane), n, lane))
        else:
            heappop(self._heap)
