"""Whatever happens in a thread: its history is valid at every moment, and told the same ever after.

`ENGINE_ASSISTANT_TEST_TALKS` is how many talks there are; without it, a few that are the same in
every run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from engine_assistant import Assistant, make_engine
from engine_assistant.model.events import Known, StepStart, TextDelta, Unknown, UserMessage
from engine_assistant.model.views.history import (
    HistoryAssistant,
    HistoryMessage,
    HistoryTool,
    HistoryUser,
)
from engine_assistant.rules.history import Telling
from tests.rig.chats import refused
from tests.rig.talks import Talk

GIVEN = "ENGINE_ASSISTANT_TEST_TALKS"
SETTINGS = settings(
    max_examples=int(os.environ.get(GIVEN, "30")),
    derandomize=GIVEN not in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if GIVEN in os.environ else [Phase.generate],
)
MOVES = 40


@pytest.fixture(scope="module")
def memory() -> Iterator[Engine]:
    """SQLite without a disk: these talks are long."""
    engine = make_engine("sqlite://")
    Assistant(engine).migrate()
    yield engine
    engine.dispose()


def _is_whole(messages: Sequence[HistoryMessage]) -> None:
    """Check what holds of every history, whoever reads it."""
    assert refused(messages) is None
    for before, message in zip([None, *messages], messages, strict=False):
        calls = before.calls if isinstance(before, HistoryAssistant) else ()
        if isinstance(message, HistoryTool):
            assert [call.call_id for call in calls] == [one.call_id for one in message.results]
        else:
            assert calls == ()
        assert 1 <= message.from_seq <= message.to_seq


def _nothing_is_lost(messages: Sequence[HistoryMessage], log: Sequence[Known | Unknown]) -> None:
    said = [message.text for message in messages if isinstance(message, HistoryUser)]
    assert said == [event.text for event in log if isinstance(event, UserMessage)]
    spoken = [message.text for message in messages if isinstance(message, HistoryAssistant)]
    assert "".join(spoken) == "".join(e.text for e in log if isinstance(e, TextDelta))


@pytest.mark.guarantee("G-HIST-01", "G-HIST-02", "G-HIST-05", "G-HIST-10", "G-HIST-12")
def test_a_history_is_valid_at_every_moment_of_any_talk(memory: Engine) -> None:
    seen: Counter[str] = Counter()

    def look(talk: Talk) -> None:
        """With the summaries that were made on the way."""
        told = talk.stage.bot.history(thread_id=talk.stage.thread_id)
        _is_whole(told.messages)
        seen.update(message.role for message in told.messages)

    @SETTINGS
    @given(st.randoms(use_true_random=True))
    def walk(dice: Random) -> None:
        talk = Talk(memory, dice)
        for _ in range(MOVES):
            talk.move()
            if dice.randrange(4) == 0:
                look(talk)
        telling, frozen, log = Telling(), list[HistoryMessage](), talk.log()
        for event in log:
            telling.take(event)
            messages = telling.messages
            _is_whole(messages)
            assert messages[: len(frozen)] == frozen
            if isinstance(event, StepStart):
                frozen = messages
        _nothing_is_lost(telling.messages, log)
        for message in telling.messages:
            if isinstance(message, HistoryTool):
                seen.update(f"tool {result.status}" for result in message.results)
        seen.update(event.type for event in log)
        doctor = talk.stage.assistant.doctor(thread_id=talk.stage.thread_id)
        assert list(doctor) == []

    walk()
    # The talks came far enough to say anything.
    statuses = ("output", "error", "denied", "expired", "cancelled", "unknown", "pending")
    wanted = {*(f"tool {status}" for status in statuses), "tool superseded"}
    wanted |= {"user", "assistant", "summary", "note", "call-retried", "unknown-resolved"}
    assert sorted(wanted - set(seen)) == []
