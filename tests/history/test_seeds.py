"""Threads that begin with what was said elsewhere."""

import pytest

from engine_assistant import Assistant, ConflictReason, Limits, ValidationFailed
from engine_assistant.model.views.history import SeededThread
from engine_assistant.testing.clock import START
from tests.rig.logs import brief
from tests.rig.stage import ROBOT, TWIN, Stage, Values, delta, dump, refused

SAID = (
    {"role": "user", "text": "Hello \0"},
    {"role": "assistant", "text": "Hi. \u202e\U0001f600"},
    {"role": "assistant", "text": "How can I help?"},
)
SEEDS: Values = {"subject": "usr_alice", "key": "k", "messages": SAID, "title": "Before"}


def _seed(stage: Stage, **given: object) -> SeededThread:
    return SeededThread.model_validate(
        stage.bot.call("assistant/seed-thread", {**SEEDS, "messages": list(SAID), **given})
    )


@pytest.mark.guarantee("G-SEED-01")
def test_a_thread_begins_with_what_was_said(stage: Stage) -> None:
    thread = _seed(stage)
    assert (thread.subject_id, thread.key, thread.title) == ("usr_alice", "k", "Before")
    assert (thread.status, thread.turn_state, thread.turn) == ("open", "idle", 0)
    assert (thread.last_seq, thread.duplicate, thread.created_at) == (3, False, START)
    events = stage.me.read_events(thread_id=thread.id).events
    assert [(one.type, one.seq, one.turn, one.role, one.text) for one in events] == [
        ("seeded-message", seq, 0, said["role"], said["text"]) for seq, said in enumerate(SAID, 1)
    ]
    assert [one.id for one in stage.me.list_threads().items] == [thread.id]
    assert stage.assistant.list_runnable() == []
    rows = dump(stage.engine)
    assert {name for name, found in rows.items() if found} == {
        *("assistant_threads", "assistant_events", "assistant_outbox"),
    }
    assert len(rows["assistant_outbox"]) == 1
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-SEED-02")
def test_a_key_seeds_one_thread_for_ever(stage: Stage) -> None:
    first = _seed(stage)
    stage.clock.forward(60)
    before = dump(stage.engine)
    assert _seed(stage) == first.model_copy(update={"duplicate": True})
    for other in (
        {"title": None},
        {"title": "After"},
        {"messages": SAID[:2]},
        {"messages": (*SAID, SAID[0])},
        {"messages": (SAID[1], SAID[0], SAID[2])},
        {"messages": ({**SAID[0], "text": "Hello"}, *SAID[1:])},
        {"messages": ({**SAID[0], "role": "assistant"}, *SAID[1:])},
    ):
        with refused(ConflictReason.KEY_REUSED, thread_id=first.id):
            _seed(stage, **other)
    assert dump(stage.engine) == before
    assert _seed(stage, subject="usr_bob").id != first.id
    twin = stage.assistant.acting_as(TWIN["run"])
    assert twin.seed_thread(subject="usr_alice", key="k", messages=SAID).id != first.id


@pytest.mark.guarantee("G-SEED-02")
def test_a_key_of_a_thread_that_began_empty_is_reused(stage: Stage) -> None:
    thread = stage.me.create_thread(key="k", title="Before")
    for _ in range(2):
        with refused(ConflictReason.KEY_REUSED, thread_id=thread.id):
            _seed(stage)
        stage.me.send_message(thread_id=thread.id, text="Hello \0", key="m")
    seeded = _seed(stage, key="other")
    assert stage.me.create_thread(key="other", title="Before").id == seeded.id


@pytest.mark.guarantee("G-SEED-03")
def test_seeded_again_nothing_comes_back(stage: Stage) -> None:
    thread = _seed(stage)
    stage.me.send_message(thread_id=thread.id, text="Go on")
    run = stage.take(thread.id)
    stage.append(run, delta("Yes."))
    stage.rest(run)
    stage.bot.compact(
        thread_id=thread.id, from_seq=1, to_seq=5, summary="They met.", expected_head=7
    )
    told = stage.me.history(thread_id=thread.id)
    assert brief(told.messages) == ["summary They met.", "assistant Yes.()"]
    before = dump(stage.engine)
    again = _seed(stage)
    assert (again.id, again.last_seq, again.turn, again.duplicate) == (thread.id, 7, 1, True)
    assert dump(stage.engine) == before
    assert stage.me.history(thread_id=thread.id) == told
    stage.me.close_thread(thread_id=thread.id)
    assert _seed(stage).status == "closed"
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-SEED-04")
def test_the_first_message_opens_turn_1_behind_the_seeds(stage: Stage) -> None:
    thread = _seed(stage)
    sent = stage.me.send_message(thread_id=thread.id, text="Go on")
    assert (sent.turn, sent.first_seq, sent.last_seq) == (1, 4, 5)
    told = stage.me.history(thread_id=thread.id)
    assert [(one.role, one.turn, one.from_seq) for one in told.messages] == [
        *(("user", 0, 1), ("assistant", 0, 2), ("assistant", 0, 3), ("user", 1, 4)),
    ]
    assert stage.me.history(thread_id=thread.id, budget=1).omitted == 1


@pytest.mark.guarantee("G-SEED-01")
def test_what_is_too_much_is_refused_whole(stage: Stage) -> None:
    before = dump(stage.engine)
    few = Assistant(stage.engine, limits=Limits(batch_events=2, batch_bytes=200)).acting_as(ROBOT)
    for messages in ([], [SAID[0]] * 3, [{"role": "user", "text": "x" * 100}] * 2):
        with pytest.raises(ValidationFailed) as wrong:
            few.seed_thread(subject="usr_alice", key="k", messages=messages)
        assert "xxx" not in str(wrong.value)
    assert dump(stage.engine) == before
    assert few.seed_thread(subject="usr_alice", key="k", messages=SAID[:2]).last_seq == 2
