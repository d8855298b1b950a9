"""Measuring: everything that is compared takes turns in one run, and medians are compared."""

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

__all__ = ["FULL", "QUICK", "Row", "Sizes", "Work", "at_least", "at_most", "rates", "timings"]

Work = Callable[[], object]

_STRETCH: Final = 10
"""Calls in one turn: what streams an answer appends batch after batch."""

_WARM_UP: Final = 8
"""Calls before anything counts: psycopg prepares a statement at its sixth use."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    """Turns of each contender, where single calls are timed."""
    reads: int
    """The same, where a call reads a thousand events."""
    bouts: int
    """Turns of each contender, where many threads run for a while."""
    seconds: float
    """How long such a while is."""
    history: int
    """Events of the long thread."""
    page: int
    """Events of a page."""
    idle: int
    """Threads that rest beside those that a run should pick up."""


FULL: Final = Sizes(
    rounds=1500,
    reads=150,
    bouts=6,
    seconds=1.5,
    history=100_000,
    page=1000,
    idle=1_000_000,
)
QUICK: Final = Sizes(rounds=8, reads=3, bouts=1, seconds=0.05, history=300, page=100, idle=10_000)


@dataclass(frozen=True)
class Row:
    """One line of the table: what was compared, what came out, and whether that will do."""

    name: str
    against: str
    ours: float
    other: float
    unit: str
    ratio: float
    bound: str | None
    passed: bool

    @property
    def digits(self) -> int:
        """Decimal places that mean something."""
        return 2 if self.unit == "ms" else 0

    def plain(self) -> dict[str, object]:
        """Answer the row as JSON values."""
        return asdict(self)


def at_most(name: str, against: str, ours: float, other: float, most: float | None) -> Row:
    """Compare two durations (seconds): ours may be `most` times the other; None: just to know."""
    ratio = ours / other
    bound = None if most is None else f"≤ {most:.2f}"
    passed = most is None or ratio <= most
    return Row(name, against, ours * 1e3, other * 1e3, "ms", ratio, bound, passed)


def at_least(name: str, against: str, ours: float, other: float, least: float) -> Row:
    """Compare two rates (calls a second): ours must be `least` times the other."""
    ratio = ours / other
    return Row(name, against, ours, other, "/s", ratio, f"≥ {least:.2f}", ratio >= least)


def timings(contenders: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Answer the median duration of each contender, in seconds.

    They take turns, a few calls each.
    """
    for work in contenders.values():
        for _ in range(min(rounds, _WARM_UP)):
            work()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders.items())
    for _ in range(0, rounds, _STRETCH):
        for name, work in order:
            for _ in range(min(rounds, _STRETCH)):
                start = time.perf_counter()
                work()
                taken[name].append(time.perf_counter() - start)
        # Whoever follows a slow neighbour should not always be the same.
        order.append(order.pop(0))
    return {name: statistics.median(times) for name, times in taken.items()}


def rates(
    contenders: Mapping[str, Sequence[Work]], *, bouts: int, seconds: float
) -> dict[str, float]:
    """Answer the median rate of each team, in calls a second; the works of a team run at once."""
    for team in contenders.values():
        for work in team:
            for _ in range(_WARM_UP):
                work()
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders.items())
    for _ in range(bouts):
        for name, team in order:
            seen[name].append(_bout(team, seconds))
        order.append(order.pop(0))
    return {name: statistics.median(found) for name, found in seen.items()}


def _bout(team: Sequence[Work], seconds: float) -> float:
    """Run a team for a while, one thread for each work, and answer its calls a second."""
    start = threading.Barrier(len(team) + 1)
    over = threading.Event()
    failures: list[BaseException] = []
    done: list[int] = []

    def run(work: Work) -> None:
        count = 0
        try:
            start.wait()
            while not over.is_set():
                work()
                count += 1
        except BaseException as error:  # noqa: BLE001 - it is raised where the team was started
            failures.append(error)
        done.append(count)

    threads = [threading.Thread(target=run, args=(work,)) for work in team]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - began
    if failures:
        raise failures[0]
    return sum(done) / taken
