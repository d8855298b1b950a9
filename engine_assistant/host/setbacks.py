"""Threads that are left alone for a while, because running them did not go well."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Setbacks"]

_MOST: Final = 1000
"""Threads that are remembered. With more, those that failed first are asked again early."""

_DOUBLINGS: Final = 32

_Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Setback:
    failures: int
    until: float


class Setbacks:
    """Says which threads are to be left alone now.

    Args:
        first: seconds after one failure. They double with each that follows.
        longest: seconds at most. After as many without another failure, all is forgotten.
        clock: gives seconds.
    """

    def __init__(
        self, first: float, longest: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._longest = longest
        self._clock = clock
        self._known: dict[_Key, _Setback] = {}

    def failed(self, key: _Key) -> None:
        """Leave it alone, for longer than the last time."""
        known = self._known.pop(key, None)
        failures = 1 + (known.failures if known else 0)
        pause = min(self._first * 2.0 ** min(failures - 1, _DOUBLINGS), self._longest)
        self._remember(key, _Setback(failures, self._clock() + pause))

    def put_off(self, key: _Key) -> None:
        """Leave it alone for the first pause, without counting a failure."""
        known = self._known.pop(key, None)
        failures = known.failures if known else 0
        self._remember(key, _Setback(failures, self._clock() + self._first))

    def forget(self, key: _Key) -> None:
        """It went well: what was before counts no more."""
        self._known.pop(key, None)

    def left_alone(self) -> list[_Key]:
        """Return the threads that are to be left alone now."""
        now = self._clock()
        self._known = {
            key: one for key, one in self._known.items() if one.until + self._longest > now
        }
        return [key for key, one in self._known.items() if one.until > now]

    def _remember(self, key: _Key, setback: _Setback) -> None:
        self._known[key] = setback
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
