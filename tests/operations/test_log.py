"""The log: appended whole or not at all, read by its numbers."""

import json

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from engine_assistant import ConflictReason, Internal, NotFound
from engine_assistant.model.events import TextDelta, Unknown
from tests.rig.stage import INPUT, Play, Stage, Values, delta, dump, propose, refused


@pytest.fixture
def run(stage: Stage) -> Values:
    """A thread with ten events."""
    run = stage.open_turn()
    stage.append(run, *[delta(f"{n}") for n in range(8)])
    return run


def _read(stage: Stage, run: Values, **given: int) -> tuple[list[int], int, int]:
    page = stage.me.read_events(thread_id=str(run["thread_id"]), **given)
    return [event.seq for event in page.events], page.last_seq, page.head_seq


@pytest.mark.guarantee("G-OPS-17")
@pytest.mark.parametrize(
    ("given", "seqs", "last"),
    [
        ({}, range(1, 11), 10),
        ({"after": 0, "limit": 3}, range(1, 4), 3),
        ({"after": 3, "limit": 3}, range(4, 7), 6),
        ({"after": 9, "limit": 3}, range(10, 11), 10),
        ({"after": 10}, (), 10),
        ({"after": 500}, (), 10),
        ({"limit": 10}, range(1, 11), 10),
        ({"last": 1}, range(10, 11), 10),
        ({"last": 10}, range(1, 11), 10),
        ({"last": 1000}, range(1, 11), 10),
    ],
)
def test_a_page_is_a_range_of_numbers(
    stage: Stage, run: Values, given: dict[str, int], seqs: range, last: int
) -> None:
    assert _read(stage, run, **given) == (list(seqs), last, 10)


@pytest.mark.guarantee("G-OPS-17")
def test_a_reader_is_done_when_it_has_reached_the_head(stage: Stage, run: Values) -> None:
    seen, after, head = [], 0, None
    while after != head:
        seqs, after, head = _read(stage, run, after=after, limit=3)
        seen += seqs
    assert seen == list(range(1, 11))
    stage.me.close_thread(thread_id=run["thread_id"])
    assert _read(stage, run, after=10)[0] == [11]


@pytest.mark.guarantee("G-OPS-18")
def test_the_page_as_bytes_is_the_page_as_objects(play: Play) -> None:
    thread_id, stage = play.thread_id, play.stage
    for given in ({}, {"after": 2, "limit": 3}, {"last": 2}, {"after": 500}):
        page = stage.me.read_events(thread_id=thread_id, **given)
        raw = json.loads(stage.me.read_events_json(thread_id=thread_id, **given))
        assert (raw["last_seq"], raw["head_seq"]) == (page.last_seq, page.head_seq)
        assert len(raw["events"]) == len(page.events)
        for one, event in zip(raw["events"], page.events, strict=True):
            assert one == event.model_dump(mode="json", exclude_unset=True) | {"type": event.type}
    with pytest.raises(NotFound):
        stage.bob.read_events_json(thread_id=thread_id)


def _change(engine: Engine, thread_id: str, seq: int, **values: str) -> None:
    with engine.begin() as connection:
        sets = ", ".join(f"{name} = :{name}" for name in values)
        which = "thread_id = :thread_id AND seq = :seq"
        statement = sa.text(f"UPDATE assistant_events SET {sets} WHERE {which}")
        key = {"thread_id": thread_id, "seq": seq}
        assert connection.execute(statement, values | key).rowcount == 1


@pytest.mark.guarantee("G-OPS-19")
def test_an_event_of_a_newer_writer_is_read_as_unknown(stage: Stage, run: Values) -> None:
    body = '{"new":[1,"a\\u0000b"],"type":"shiny"}'
    _change(stage.engine, run["thread_id"], 5, type="shiny", body=body)
    page = stage.me.read_events(thread_id=run["thread_id"])
    event = page.events[4]
    assert isinstance(event, Unknown)
    assert (event.seq, event.turn, event.name) == (5, 1, "shiny")
    assert event.body == json.loads(body)
    assert [one.seq for one in page.events] == list(range(1, 11))
    raw = json.loads(stage.me.read_events_json(thread_id=run["thread_id"]))["events"][4]
    assert (raw["type"], raw["name"], raw["body"]) == ("unknown", "shiny", json.loads(body))
    plain = stage.me.call("assistant/read-events", {"thread_id": run["thread_id"]})
    assert plain["events"][4]["body"] == json.loads(body)


@pytest.mark.guarantee("G-OPS-19")
def test_a_field_that_a_newer_writer_added_does_not_close_the_thread(
    stage: Stage, run: Values
) -> None:
    body = '{"mood":{"new":1},"text":"x","type":"text-delta"}'
    _change(stage.engine, run["thread_id"], 5, type="text-delta", body=body)
    event = stage.me.read_events(thread_id=run["thread_id"]).events[4]
    assert event.model_dump(include={"seq", "type", "text"}) == {
        "seq": 5,
        "type": "text-delta",
        "text": "x",
    }
    assert not hasattr(event, "mood")
    raw = json.loads(stage.me.read_events_json(thread_id=run["thread_id"]))["events"][4]
    assert raw["mood"] == {"new": 1}


@pytest.mark.guarantee("G-OPS-20")
@pytest.mark.parametrize(
    "body",
    [
        "{hunter2",
        "",
        '{"text":7,"type":"text-delta"}',
        '{"type":"turn-finish","reason":"hunter2"}',
        '{"text":"a","type":"text-delta"},{"text":"hunter2","type":"text-delta"}',
        '["hunter2"]',
        '{"seq":7,"text":"hunter2","type":"text-delta"}',
        '{"text":"hunter2","turn":2,"type":"text-delta"}',
        '{"text":"hunter2","type":"reasoning-delta"}',
    ],
)
def test_a_broken_event_is_named_by_its_number(stage: Stage, run: Values, body: str) -> None:
    _change(stage.engine, run["thread_id"], 5, body=body)
    for given in ({}, {"after": 3, "limit": 4}, {"last": 8}):
        with refused(Internal, seq=5) as refusal:
            stage.me.read_events(thread_id=run["thread_id"], **given)
        assert "hunter2" not in repr(refusal.value.to_dict())
        assert refusal.value.__context__ is None
    assert _read(stage, run, after=5)[0] == [6, 7, 8, 9, 10]


@pytest.mark.guarantee("G-OPS-20")
def test_a_call_whose_event_is_broken_is_not_shown_as_something_else(play: Play) -> None:
    seq = next(
        event.seq
        for event in play.stage.me.read_events(thread_id=play.thread_id).events
        if event.type == "tool-input"
    )
    for body in ("{hunter2", "[]", '{"no":"input"}'):
        _change(play.stage.engine, play.thread_id, seq, body=body)
        with refused(Internal, seq=seq):
            play.stage.me.get_call(thread_id=play.thread_id, call_id="running")


@pytest.mark.guarantee("G-OPS-21")
def test_an_append_answers_the_events_as_they_stand(stage: Stage, run: Values) -> None:
    given = [TextDelta(text="a"), delta("b"), propose("c", provider_call_id="call_0")]
    answer = stage.bot.append_events(**run, events=given)
    assert answer.events == stage.me.read_events(thread_id=run["thread_id"], last=3).events
    assert [event.seq for event in answer.events] == [11, 12, 13]
    assert {(event.turn, event.at) for event in answer.events} == {(1, stage.clock.now)}
    assert (answer.duplicate, answer.interrupt_requested) == (False, False)


@pytest.mark.guarantee("G-OPS-22")
@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"type": "user-message", "text": "x", "author": "a", "input_id": "i"}, "not_a_run_event"),
        ({"type": "turn-start", "v": 1}, "not_a_run_event"),
        ({"type": "call-closed", "call_id": "c", "state": "done", "why": "x"}, "not_a_run_event"),
        ({"type": "turn-finish", "reason": "awaiting-approval"}, "no_approval_pending"),
        ({"type": "tool-output", "call_id": "unheard-of", "output": 1}, "call_state"),
        ({"type": "tool-error", "call_id": "c", "code": "x", "message": "y"}, "call_state"),
        (propose("c", tool="another"), "call_state"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["type"],
)
def test_a_batch_is_kept_whole_or_not_at_all(
    stage: Stage, run: Values, last: Values, reason: str
) -> None:
    stage.propose(run, "c")
    stage.append(run, {"type": "tool-output", "call_id": "c", "output": 1})
    stage.clock.forward(1)
    before = dump(stage.engine)
    with refused(ConflictReason(reason)):
        stage.append(run, delta("kept?"), propose("new"), last)
    # Not an event, not a call, not the lease's renewal.
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-22")
def test_events_after_the_end_of_the_turn_are_refused_in_the_same_batch(
    stage: Stage, run: Values
) -> None:
    before = dump(stage.engine)
    for end in (
        {"type": "turn-finish", "reason": "done"},
        {"type": "turn-error", "code": "x", "message": "y"},
    ):
        with refused(ConflictReason.NO_TURN_OPEN):
            stage.append(run, delta("a"), end, delta("b"))
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-22")
def test_each_event_of_a_batch_sees_the_ones_before_it(stage: Stage, run: Values) -> None:
    stage.append(
        run,
        propose("c"),
        propose("c", input={"again": True}),
        {"type": "tool-output", "call_id": "c", "output": INPUT},
        {"type": "turn-finish", "reason": "done"},
    )
    call = stage.me.get_call(thread_id=run["thread_id"], call_id="c")
    assert (call.state, call.input) == ("done", {"again": True})
    assert stage.me.get_thread(thread_id=run["thread_id"]).turn_state == "idle"
    with refused(ConflictReason.RUN_FENCED):
        stage.append(run, delta("after"))


@pytest.mark.guarantee("G-OPS-23")
@pytest.mark.parametrize("plain", [True, False])
def test_a_batch_number_is_written_once_and_answers_the_same_again(
    stage: Stage, run: Values, *, plain: bool
) -> None:
    def batch(number: int) -> list[object]:
        events = [delta(f"{number}a"), delta(f"{number}b")]
        return events if plain else [*events, propose(f"c{number}")]

    for number in (1, 2):
        first = stage.bot.append_events(**run, events=batch(number), batch=number)
        before = dump(stage.engine)
        again = stage.bot.append_events(**run, events=batch(number), batch=number)
        assert again.duplicate
        assert again.events == first.events
        with refused(ConflictReason.KEY_REUSED, batch=number):
            stage.bot.append_events(**run, events=[delta("other")], batch=number)
        for gap in (number + 2, 256):
            with refused(ConflictReason.BATCH_GAP, expected=number + 1):
                stage.bot.append_events(**run, events=batch(gap), batch=gap)
        assert dump(stage.engine) == before
    with refused(ConflictReason.BATCH_GAP, expected=3):
        stage.bot.append_events(**run, events=batch(1), batch=1)
    # Unnumbered batches may stand between; a new fence counts from 1.
    stage.append(run, delta("x"))
    stage.bot.append_events(**run, events=batch(3), batch=3)
    fresh = stage.take(str(run["thread_id"]))
    with refused(ConflictReason.BATCH_GAP, expected=1):
        stage.bot.append_events(**fresh, events=batch(4), batch=4)
    assert not stage.bot.append_events(**fresh, events=batch(4), batch=1).duplicate
    with refused(ConflictReason.RUN_FENCED):
        stage.bot.append_events(**run, events=batch(3), batch=3)


@pytest.mark.guarantee("G-OPS-23")
def test_the_batch_that_ended_the_turn_is_answered_again(stage: Stage, run: Values) -> None:
    events = [delta("bye"), {"type": "turn-finish", "reason": "done"}]
    first = stage.bot.append_events(**run, events=events, batch=1)
    again = stage.bot.append_events(**run, events=events, batch=1)
    assert (again.duplicate, again.events) == (True, first.events)


@pytest.mark.guarantee("G-OPS-24")
def test_what_the_run_says_is_kept_as_it_said_it(stage: Stage, run: Values) -> None:
    said = [
        {"type": "step-start", "step": "s1"},
        {"type": "step-start"},
        delta(""),
        {"type": "reasoning-delta", "text": "hm"},
        {"type": "tool-progress", "call_id": "whatever", "payload": {"percent": 1.0}},
        {"type": "data", "kind": "k", "payload": None, "ignorable": True},
        {"type": "step-finish", "usage": {"in": 1, "cost": 1e-7}, "stop_reason": "end"},
    ]
    stage.append(run, *said)
    raw = json.loads(stage.me.read_events_json(thread_id=run["thread_id"], last=len(said)))
    for one, given in zip(raw["events"], said, strict=True):
        assert {key: one[key] for key in given} == given
        assert set(one) - set(given) == {"seq", "turn", "at"}
