"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

__all__ = ["START", "Clock"]

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""Where a clock begins that is not told: no moment that a test meets by accident."""


class Clock:
    """The time, for `Assistant(engine, clock=clock)`. Any number of threads may read it.

    Raises:
        ValueError: a time without its zone.
    """

    def __init__(self, now: datetime = START) -> None:
        self._lock = Lock()
        self.set(now)

    @property
    def now(self) -> datetime:
        """What it shows."""
        return self._now

    def __call__(self) -> datetime:
        """Return what it shows, as the engine asks."""
        return self._now

    def set(self, now: datetime) -> None:
        """Show `now` from here on. It may be earlier: clocks of real machines do that, too.

        Raises:
            ValueError: a time without its zone.
        """
        if now.tzinfo is None:
            raise ValueError("a clock shows a time with its zone")
        with self._lock:
            self._now = now

    def forward(self, seconds: float) -> None:
        """Move it on by `seconds`."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
