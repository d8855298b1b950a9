"""Of any events in any order, also of those that no engine would write, a history is valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_assistant.doctor.compactions import Cuts
from engine_assistant.doctor.findings import Notes
from engine_assistant.model.commands.history import Compact
from engine_assistant.model.errors import Conflict
from engine_assistant.model.events import Known, StepStart, Unknown
from engine_assistant.model.rows import CompactionRow
from engine_assistant.model.views.history import HistoryMessage
from engine_assistant.rules.compaction import compact, gaps
from engine_assistant.rules.history import Telling, tell, untold_calls
from engine_assistant.rules.threads import new_thread
from tests.rig.chats import refused
from tests.rig.logs import (
    AT,
    DONE,
    RESTS,
    STEP,
    STEP_DONE,
    Body,
    brief,
    claimed,
    closed,
    failure,
    log,
    output,
    propose,
    resolved,
    retried,
    say,
    settled,
    summary,
    word,
)

CALLS = ("c1", "c2", "c3")
BODIES: tuple[Body, ...] = (
    *(say(), STEP, STEP, STEP_DONE, DONE, RESTS, word("a"), word("b"), word(""), word(" ")),
    *(propose(call) for call in CALLS * 2),
    *(output(call) for call in CALLS),
    *(failure(call, late=True) for call in CALLS),
    *(closed(call) for call in CALLS),
    *(retried(call) for call in CALLS[:2]),
    *(claimed(call) for call in CALLS[:2]),
    *(settled(call, happened=call == "c1") for call in CALLS[:2]),
    *(resolved(call, approved=call == "c2") for call in CALLS[:2]),
)
LOGS = st.lists(st.sampled_from(BODIES), min_size=1, max_size=30)
SETTINGS = settings(max_examples=300, derandomize=True, database=None, deadline=None)

Events = Sequence[Known | Unknown]


@pytest.mark.guarantee("G-HIST-01", "G-HIST-02")
@SETTINGS
@given(LOGS)
def test_a_history_is_valid_and_told_once_and_for_all(bodies: list[Body]) -> None:
    telling, frozen = Telling(), list[HistoryMessage]()
    for event in log(*bodies):
        telling.take(event)
        messages = telling.messages
        assert refused(messages) is None
        assert messages[: len(frozen)] == frozen
        if isinstance(event, StepStart):
            frozen = messages


def _tell(events: Events, rows: Sequence[CompactionRow]) -> Telling:
    """Tell what the operation would read."""
    ranges = gaps(rows, len(events))
    read = [event for first, last in ranges for event in events[first - 1 : last]]
    return tell(read, rows, dict.fromkeys(untold_calls(read), "look"))


def _summarise(events: Events, made: dict[int, CompactionRow], first: int, last: int) -> None:
    """Make a summary of a range, or of what of it will do, if anything will."""
    head = new_thread(tenant="a", thread_id="t", subject="s", key=None, title=None, now=AT)
    given = {"thread_id": "t", "summary": "s", "expected_head": 0}
    telling = _tell(events, _in_force(made))
    for _ in range(2):
        asked = Compact.model_validate({**given, "from_seq": first, "to_seq": last})
        try:
            plan = compact(head, AT, asked, _in_force(made), telling)
        except Conflict as refusal:
            first, last = (refusal.facts[name] or 0 for name in ("from_seq", "to_seq"))
            if not first:
                return
        else:
            made |= {change.after.n: change.after for change in plan.changes}
            return
    raise AssertionError("what was said to be legal is not")


def _in_force(made: dict[int, CompactionRow]) -> list[CompactionRow]:
    return [row for row in made.values() if row.covered_by is None]


@pytest.mark.guarantee("G-HIST-10", "G-HIST-12")
@SETTINGS
@given(LOGS, st.lists(st.tuples(*[st.integers(1, 30)] * 3), min_size=1, max_size=3))
def test_it_stays_valid_whatever_is_summarised_and_whatever_comes(
    bodies: list[Body], wanted: list[tuple[int, int, int]]
) -> None:
    events, made = log(*bodies), dict[int, CompactionRow]()
    wanted = sorted((min(head, len(events)), *sorted(ends)) for head, *ends in wanted)
    for head in range(1, len(events) + 1):
        for at, first, last in wanted:
            if at == head and last <= head:
                _summarise(events[:head], made, first, last)
        messages = _tell(events[:head], _in_force(made)).messages
        assert refused(messages) is None
        shown = [(one.from_seq, one.to_seq) for one in messages if one.role == "summary"]
        assert shown == sorted((row.from_seq, row.to_seq) for row in _in_force(made))
    # The doctor derives for itself where a summary may stand.
    notes = Notes("a", "t")
    cuts = Cuts(notes, [asdict(made[n]) for n in sorted(made)])
    for event in events:
        cuts.take(None if isinstance(event, Unknown) else event, event.seq)
    cuts.finish(len(events))
    assert notes.drain() == []


@pytest.mark.guarantee("G-HIST-10")
def test_the_summaries_of_a_log_are_told_in_the_order_of_their_ranges() -> None:
    events = log(say("a"), DONE, say("b"), DONE, say("c"), DONE)
    rows = [summary(2, 5, 5, "third"), summary(1, 1, 2, "first")]
    assert brief(_tell(events, rows).messages) == ["summary first", "user b", "summary third"]
