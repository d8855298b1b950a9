"""What a model is told: the same as it was told before, and shortened only between messages."""

from functools import partial
from itertools import pairwise

from engine_assistant import ConflictReason
from engine_assistant.model.views.history import Compaction, HistoryNote, HistoryTool, SeededThread
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import (
    Held,
    Stage,
    finish,
    output,
    proposal,
    words,
)

STEP = {"type": "step-start"}


def _roles(stage: Stage, thread_id: str) -> list[str]:
    return [message.role for message in stage.bot.history(thread_id=thread_id).messages]


@shows("G-HIST-01", "G-HIST-02", "G-HIST-03", "G-HIST-09")
def what_a_model_was_told_stays_as_it_was(stage: Stage) -> None:
    """Each call has one result behind its answer; one that comes late is a note."""
    held = stage.running()
    thread_id = held["thread_id"]
    told = []

    def asks() -> None:
        stage.bot.append_events(**held, events=[STEP])
        told.append(stage.bot.history(thread_id=thread_id).messages)

    asks()
    calls = [words("Let me look."), proposal("call-1"), proposal("call-2")]
    stage.bot.append_events(**held, events=calls)
    assert [
        result.status
        for message in stage.bot.history(thread_id=thread_id).messages
        if isinstance(message, HistoryTool)
        for result in message.results
    ] == ["pending", "pending"]
    stage.bot.append_events(**held, events=[output("call-2")])
    asks()
    # It was told by then that this one has no result.
    stage.bot.append_events(**held, events=[output("call-1"), words("One is there.")])
    asks()
    stage.bot.append_events(**held, events=[words("Both are."), finish()])
    told.append(stage.me.history(thread_id=thread_id).messages)
    for earlier, later in pairwise(told):
        assert later[: len(earlier)] == earlier
    results = [message for message in told[-1] if isinstance(message, HistoryTool)]
    assert [(one.call_id, one.status) for one in results[0].results] == [
        ("call-1", "pending"),
        ("call-2", "output"),
    ]
    (note,) = [message for message in told[-1] if isinstance(message, HistoryNote)]
    assert (note.result.call_id, note.result.status) == ("call-1", "output")
    assert [message.role for message in told[-1]] == [
        *("user", "assistant", "tool", "note", "assistant", "assistant"),
    ]
    assert [event.type for event in stage.log(thread_id)[note.from_seq - 1 : note.to_seq]] == [
        "tool-output"
    ]


def _two_turns(stage: Stage) -> Held:
    """Open a thread in which a call was made, whose first turn is over; the second is run."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.bot.append_events(**held, events=[words("Let me look."), proposal(), output()])  # 3 to 5
    stage.bot.append_events(**held, events=[words("It was sent."), finish()])  # 6 and 7
    stage.me.send_message(thread_id=thread_id, text="And order 8?", key="msg-2")  # 8 and 9
    return stage.take(thread_id)


@shows("G-HIST-10", "G-HIST-11", "G-HIST-12", "G-HIST-14")
def a_summary_stands_for_whole_messages(stage: Stage) -> None:
    """Never for half a call or half a summary; the log and old keys are as they were."""
    thread_id = _two_turns(stage)["thread_id"]
    before = stage.log(thread_id)

    def compact(first: int, last: int, summary: str = "She asked.") -> Compaction:
        return stage.bot.compact(
            thread_id=thread_id,
            from_seq=first,
            to_seq=last,
            summary=summary,
            expected_head=len(before),
        )

    for first, last in ((1, 3), (1, 4), (4, 7), (5, 5)):
        with stage.refused(ConflictReason.RANGE_REFUSED, thread_id):
            compact(first, last)
    made = compact(1, 5)
    assert (made.n, compact(1, 5)) == (1, made.model_copy(update={"duplicate": True}))
    assert _roles(stage, thread_id) == ["summary", "assistant", "user"]
    with stage.refused(ConflictReason.RANGE_REFUSED, thread_id):
        compact(3, 7)
    assert compact(1, 7, "It was sent.").n == 2
    assert _roles(stage, thread_id) == ["summary", "user"]
    listed = stage.me.list_compactions(thread_id=thread_id).items
    assert [(one.n, one.covered_by) for one in listed] == [(1, 2), (2, None)]
    assert stage.log(thread_id) == before
    again = stage.me.send_message(thread_id=thread_id, text="And order 8?", key="msg-2")
    assert (again.duplicate, again.first_seq) == (True, 8)


@shows("G-HIST-13")
def a_summary_of_what_went_on_meanwhile_is_refused(stage: Stage) -> None:
    """Of summaries made at once of one range, one stands; behind the head, none."""
    held = _two_turns(stage)
    thread_id = held["thread_id"]
    told = stage.bot.history(thread_id=thread_id)
    stage.bot.append_events(**held, events=[words("One more word.")])
    summarise = partial(stage.bot.compact, thread_id=thread_id, from_seq=1, to_seq=7)
    with stage.refused(ConflictReason.STALE_HEAD, thread_id):
        summarise(summary="She asked.", expected_head=told.head_seq)
    head = told.head_seq + 1
    answers = stage.at_once(
        [partial(summarise, summary=str(n), expected_head=head) for n in range(4)]
    )
    made = [one for one in answers if isinstance(one, Compaction)]
    shown = stage.me.list_compactions(thread_id=thread_id).items
    assert sorted(one.n for one in made) == [one.n for one in shown]
    assert [one.covered_by for one in shown].count(None) == 1
    assert _roles(stage, thread_id).count("summary") == 1


@shows("G-SEED-01", "G-SEED-02", "G-SEED-03", "G-SEED-04")
def a_key_seeds_one_thread_for_ever(stage: Stage) -> None:
    """Also when several race, and when its beginning was summarised: nothing comes back."""
    said = [{"role": "assistant", "text": "Hi."}, {"role": "user", "text": "A refund!"}]
    seed = partial(stage.bot.seed_thread, subject="alice", key="chat-42", messages=said)
    seeded = [one for one in stage.at_once([seed] * 4) if isinstance(one, SeededThread)]
    (thread_id,) = {one.id for one in seeded}
    assert [one.duplicate for one in seeded].count(False) == 1
    assert stage.types(thread_id) == ["seeded-message"] * 2
    assert (seeded[0].turn, seeded[0].turn_state) == (0, "idle")
    with stage.refused(ConflictReason.KEY_REUSED, thread_id):
        stage.bot.seed_thread(subject="alice", key="chat-42", messages=said[:1])
    sent = stage.me.send_message(thread_id=thread_id, text="It is order 7.")
    assert (sent.turn, sent.first_seq) == (1, 3)
    assert _roles(stage, thread_id) == ["assistant", "user", "user"]
    stage.bot.compact(
        thread_id=thread_id, from_seq=1, to_seq=2, summary="They met.", expected_head=4
    )
    assert seed().duplicate is True
    assert _roles(stage, thread_id) == ["summary", "user"]
    assert len(stage.log(thread_id)) == 4
