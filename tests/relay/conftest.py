"""A clock that only moves when a test moves it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> _Clock:
    """The clock itself."""
    return _Clock()


@pytest.fixture
def ticking(clock: _Clock) -> Callable[[float], None]:
    """Moves the clock by some seconds."""
    return clock.tick


@pytest.fixture
def clocked(engine: sa.Engine, clock: _Clock) -> Assistant:
    """The engine under that clock."""
    return Assistant(engine, clock=clock)
