"""Speed of Luigi with no-op tasks: ``python luigi_rate.py RUNS TASKS`` prints the tasks per second.

This program imports nothing of bai-hub: it runs in an environment of its own, because Luigi needs
other versions of some packages. The tasks form the graph of ``benchmarks/pipelines.py``. Luigi
keeps their states in memory only.
"""

from __future__ import annotations

import sys
import time

import luigi

WIDTH = 10
DONE: set[tuple[int, int]] = set()


class NoOperation(luigi.Task):  # type: ignore[misc]  # Luigi is not installed here
    of_run = luigi.IntParameter()
    number = luigi.IntParameter()

    def requires(self) -> list[NoOperation]:
        first = self.number - self.number % WIDTH - WIDTH
        if first < 0:
            return []
        needs = sorted({first + (self.number + shift) % WIDTH for shift in (0, 1)})
        return [NoOperation(of_run=self.of_run, number=need) for need in needs]

    def complete(self) -> bool:
        return (self.of_run, self.number) in DONE

    def run(self) -> None:
        DONE.add((self.of_run, self.number))


def main(runs: int, tasks: int) -> None:
    last = range(max(tasks - WIDTH, 0), tasks)
    wanted = [NoOperation(of_run=run, number=number) for run in range(runs) for number in last]
    began = time.perf_counter()
    luigi.build(wanted, local_scheduler=True, workers=1, log_level="CRITICAL")
    seconds = time.perf_counter() - began
    assert len(DONE) == runs * tasks
    print(round(runs * tasks / seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
