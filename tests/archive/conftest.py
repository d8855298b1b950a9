"""The record with a bit of everything in it, and fresh databases beside it to bring it into."""

from collections.abc import Iterator

import pytest

from engine_assistant import Assistant
from tests.doctor.conftest import postgres_record, sqlite_record, walked

__all__ = ["postgres_record", "sqlite_record", "walked"]


@pytest.fixture
def target(database_url: str) -> Iterator[Assistant]:
    """An engine on an empty database."""
    assistant = Assistant.from_url(database_url)
    yield assistant
    assistant.engine.dispose()


@pytest.fixture
def small(sqlite_url: str) -> Iterator[Assistant]:
    """The same on SQLite alone, where a thousand tries take no time."""
    assistant = Assistant.from_url(sqlite_url)
    yield assistant
    assistant.engine.dispose()
