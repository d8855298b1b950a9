"""Both sides of a walk: each command goes to the engine and to the model, and both must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from sqlalchemy import Engine

from engine_assistant import AssistantError, Conflict, Limits
from tests.rig import drawn
from tests.rig.drawn import HOPEFUL
from tests.rig.model import Ask, Event, Model, Refused
from tests.rig.states import Stage
from tests.rig.talk import ROOM

T = TypeVar("T")


class Draw(Protocol):
    """How a command draws its values."""

    def __call__(self, strategy: st.SearchStrategy[T], /) -> T: ...


class Walker(RuleBasedStateMachine):
    """One thread on a real database, and the model of it."""

    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(self.engine, limits=Limits(queued_inputs=ROOM))
        self.model = Model()
        self.digests: dict[tuple[str, int], dict[str, str]] = {}
        self.given: list[Event] = []
        self.asked: Ask | None = None
        self.expected: object = None
        self.ids: list[str] = []
        self.checked = self.nonces = self.steps = 0

    # ------------------------------------------------------------ both sides at once

    def both(self, engine: Callable[[], T], model: Callable[[], object]) -> T | None:
        """Do it on both sides. Answer the engine's answer, or None when both refused."""
        self.steps += 1
        reason: str | None = None
        try:
            with self.model.trying():
                self.expected = model()
        except Refused as refused:
            reason = refused.reason
        try:
            answer = engine()
        except AssistantError as error:
            found = error.reason.value if isinstance(error, Conflict) else error.code
            assert found == reason, f"the engine refused with {found}, the model: {reason}"
            return None
        assert reason is None, f"the engine admitted what the model refuses with {reason}"
        return answer

    def rarely(self) -> bool:
        """Say whether what cannot succeed is tried all the same."""
        return self.steps % 7 == 0

    def holder(self, draw: Draw) -> str:
        return draw(drawn.runs) or self.model.run or "run-1"

    def fence(self, draw: Draw) -> int:
        return max(1, self.model.fence + draw(drawn.fences))

    def choose(self, what: str, pick: int, *, aim: bool = True) -> str:
        """Answer a call for which this may be admitted, if there is one; else any, or none."""
        states = HOPEFUL[what] if aim else ()
        known = self.model.in_order()
        names = [name for name in known if self.model.calls[name].state in states]
        return names[pick % len(names)] if names else f"c{1 + pick % (len(known) + 1)}"

    def weight(self, kind: str, much: int) -> int:
        """Weigh a command: one for which no call is ripe is tried, but seldom."""
        states = {*HOPEFUL.get(kind, ()), *(HOPEFUL["again"] if kind == "request" else ())}
        ripe = not states or any(call.state in states for call in self.model.calls.values())
        return much if ripe else 1
