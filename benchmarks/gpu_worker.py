"""One tenant of a GPU in a separate process: ``python -m benchmarks.gpu_worker ACTION``.

``check``: report why CUDA is unavailable. ``fill``: report how many bytes can be allocated.
``hold BYTES``: allocate memory and wait. ``compute SECONDS SIZE``: multiply matrices.
``copy SECONDS``: copy memory. ``launch``: report the microseconds per launch of a tiny kernel.
``fault``: write to an invalid address.

Each action except ``hold`` prints one JSON object with its result. If CUDA fails, the object has
the key ``error`` instead. The actions hold, compute and copy first print ``{"ready": true}`` and
wait for a line on standard input.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from .cuda_calls import (
    OUT_OF_MEMORY,
    Copy,
    Cuda,
    CudaFailed,
    Product,
    trigger_memory_fault,
    unavailable_reason,
)

STEP = 256 * 2**20
RUNS_PER_CHECK = 4
LAUNCHES = 2000


def fill() -> int:
    """Allocate memory until none is left, and return the allocated bytes."""
    cuda, held = Cuda(), 0
    for step in (STEP, STEP // 16):
        try:
            while True:
                cuda.allocate(step)
                held += step
        except CudaFailed as error:
            if error.code != OUT_OF_MEMORY:
                raise
    return held


def hold(size: int) -> None:
    cuda = Cuda()
    cuda.clear(cuda.allocate(size), size)
    cuda.wait()
    send({"ready": True})
    sys.stdin.readline()


def compute(seconds: float, size: int) -> float:
    """Multiply matrices of ``size`` rows for ``seconds``; return the operations per second."""
    product = Product(Cuda(), size)
    return rate(product.run, seconds) * product.operations


def copy(seconds: float) -> float:
    """Copy device memory for ``seconds``; return the copied bytes per second."""
    return rate(Copy(Cuda(), STEP).run, seconds) * STEP


def rate(run: Callable[[int], None], seconds: float) -> float:
    """Repeat an action for ``seconds`` after the start signal; return the runs per second."""
    run(RUNS_PER_CHECK)
    send({"ready": True})
    sys.stdin.readline()
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        run(RUNS_PER_CHECK)
        done += RUNS_PER_CHECK
    return done / (time.perf_counter() - started)


def launch() -> float:
    """Return the microseconds to launch a tiny kernel and wait for its end."""
    cuda = Cuda()
    address = cuda.allocate(STEP)
    cuda.clear(address, 1)
    cuda.wait()
    started = time.perf_counter()
    for _ in range(LAUNCHES):
        cuda.clear(address, 1)
        cuda.wait()
    return (time.perf_counter() - started) / LAUNCHES * 1e6


def send(message: object) -> None:
    print(json.dumps(message), flush=True)


def main() -> int:
    try:
        return work(sys.argv[1:])
    except CudaFailed as error:
        send({"error": str(error), "code": error.code})
        return 1


def work(args: list[str]) -> int:
    match args:
        case ["check"]:
            send({"why_not": unavailable_reason()})
        case ["fill"]:
            send({"bytes": fill()})
        case ["hold", size]:
            hold(int(size))
        case ["compute", seconds, size]:
            send({"per_second": compute(float(seconds), int(size))})
        case ["copy", seconds]:
            send({"per_second": copy(float(seconds))})
        case ["launch"]:
            send({"microseconds": launch()})
        case ["fault"]:
            send({"code": trigger_memory_fault(Cuda())})
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
