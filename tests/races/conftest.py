"""A database to race on, and the two places where the first side of a race stops."""

from collections.abc import Iterator

import pytest

from tests.rig.duels import Arena, Stop


@pytest.fixture
def arena(database_url: str) -> Iterator[Arena]:
    """Races on both databases."""
    made = Arena(database_url)
    yield made
    made.dispose()


@pytest.fixture
def postgres_arena(postgres_url: str) -> Iterator[Arena]:
    """Races that need row locks, isolation levels or connections that can be cut."""
    made = Arena(postgres_url)
    yield made
    made.dispose()


@pytest.fixture(params=list(Stop), ids=lambda stop: stop.value)
def stop(request: pytest.FixtureRequest) -> Stop:
    """Where the first side of a race stops."""
    found: Stop = request.param
    return found
