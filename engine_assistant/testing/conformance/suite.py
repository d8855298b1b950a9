"""The scenarios, room by room.

A new one is a function under `shows`, in the room that it belongs to. A new room is a module of
`scenarios/`, and stands in `_ROOMS`.
"""

from typing import Final

import pytest

# A scenario speaks by `assert`: a failure must say what was expected and what came. So this stands
# before anything that imports them, and nothing outside of pytest imports this.
_PACKAGE: Final = "engine_assistant.testing.conformance"
pytest.register_assert_rewrite(f"{_PACKAGE}.scenarios", f"{_PACKAGE}.stage")

from engine_assistant.testing.conformance.scenario import Scenario  # noqa: E402
from engine_assistant.testing.conformance.scenarios import (  # noqa: E402
    approvals,
    archives,
    at_once,
    contexts,
    endings,
    history,
    people,
    queue,
    reading,
    recovery,
    repeats,
    runs,
    transactions,
    turns,
)

__all__ = ["SCENARIOS", "Scenario"]

_ROOMS: Final = (
    turns,
    runs,
    reading,
    repeats,
    approvals,
    endings,
    queue,
    recovery,
    contexts,
    history,
    at_once,
    people,
    transactions,
    archives,
)

SCENARIOS: Final = tuple(
    value for room in _ROOMS for value in vars(room).values() if isinstance(value, Scenario)
)
