"""A clock that only moves when a test moves it."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant
from engine_assistant.testing.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """The clock itself."""
    return Clock()


@pytest.fixture
def ticking(clock: Clock) -> Callable[[float], None]:
    """Moves the clock by some seconds."""
    return clock.forward


@pytest.fixture
def clocked(engine: sa.Engine, clock: Clock) -> Assistant:
    """The engine under that clock."""
    return Assistant(engine, clock=clock)
