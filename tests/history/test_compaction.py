"""Summaries: where they may stand, what they cover, and what they leave as it is."""

import pytest

from engine_assistant import ConflictReason, Limits, NotFound, ValidationFailed
from engine_assistant.assistant import Assistant
from engine_assistant.model.views.history import Compaction, History
from tests.rig.chats import refused as refused_by_providers
from tests.rig.logs import brief
from tests.rig.stage import ROBOT, TWIN, Stage, Values, delta, dump, propose, refused

STEP = {"type": "step-start"}


def _output(call: str) -> Values:
    return {"type": "tool-output", "call_id": call, "output": "ok"}


def _talk(stage: Stage) -> str:
    """Answer a thread of three turns; in the first a person speaks while a call runs."""
    run = stage.open_turn(text="one")  # 1 the message, 2 turn-start
    thread_id = str(run["thread_id"])
    stage.append(run, STEP, delta("a"), delta("b"), propose("c1"), propose("c2"))  # 3, 4 to 7
    stage.me.send_message(thread_id=thread_id, text="hurry", when_busy="steer")
    stage.bot.take_inputs(**run)  # 8
    stage.append(run, _output("c2"), _output("c1"), STEP, delta("done"))  # 9, 10, 11, 12
    stage.rest(run)  # 13
    for text in ("two", "three"):
        stage.me.send_message(thread_id=thread_id, text=text)  # 14, 15 and 18, 19
        run = stage.take(thread_id)
        stage.append(run, delta(f"{text}, too"))  # 16 and 20
        stage.rest(run)  # 17 and 21
    return thread_id


def _compact(stage: Stage, thread_id: str, first: int, last: int, **given: object) -> Compaction:
    head = stage.me.get_thread(thread_id=thread_id).last_seq
    values: Values = {"summary": "They talked.", "expected_head": head, **given}
    answer = stage.bot.call(
        "assistant/compact", {"thread_id": thread_id, "from_seq": first, "to_seq": last, **values}
    )
    return Compaction.model_validate(answer)


def _told(stage: Stage, thread_id: str) -> list[str]:
    told = stage.me.history(thread_id=thread_id)
    assert refused_by_providers(told.messages) is None
    return brief(told.messages)


ALL = [
    *("user one", "assistant ab(c1 c2)", "tool c1=output c2=output", "user hurry"),
    *("assistant done()", "user two", "assistant two, too()", "user three"),
    "assistant three, too()",
]
CUTS = [0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]
"""The numbers behind which nothing is cut through."""


@pytest.mark.guarantee("G-HIST-10")
def test_every_range_between_messages_will_do_and_no_other(stage: Stage) -> None:
    """All ranges there are: admitted, or refused with the widest one within."""
    thread_id = _talk(stage)
    assert _told(stage, thread_id) == ALL
    spans = [(1, 1), (4, 10), (12, 12), (14, 14), (16, 16), (18, 18), (20, 20)]
    for first in range(1, 22):
        for last in range(first, 23):
            inner = (
                min(cut + 1 for cut in CUTS if cut + 1 >= first),
                max(cut for cut in CUTS if cut <= last),
            )
            holds = any(inner[0] <= start and end <= inner[1] for start, end in spans)
            with stage.engine.connect() as connection:
                ops = stage.assistant.bind(connection, ROBOT)
                given = {"summary": "s", "expected_head": 21, "thread_id": thread_id}
                if (first, last) == inner and holds:
                    made = ops.compact(**given, from_seq=first, to_seq=last)
                    assert (made.n, made.from_seq, made.to_seq) == (1, first, last)
                    told = ops.history(thread_id=thread_id).messages
                    assert refused_by_providers(told) is None
                    assert "summary s" in brief(told)
                else:
                    facts = inner if holds else (None, None)
                    with refused(ConflictReason.RANGE_REFUSED, from_seq=facts[0], to_seq=facts[1]):
                        ops.compact(**given, from_seq=first, to_seq=last)


@pytest.mark.guarantee("G-HIST-10")
def test_what_is_not_over_cannot_be_summarised(stage: Stage) -> None:
    run = stage.open_turn()
    thread_id = str(run["thread_id"])
    for events in (
        [STEP, delta("an answer that goes on")],
        [propose("c1"), propose("c2")],
        [_output("c1")],
    ):
        stage.append(run, *events)
        head = stage.me.get_thread(thread_id=thread_id).last_seq
        with refused(ConflictReason.RANGE_REFUSED, from_seq=1, to_seq=3):
            _compact(stage, thread_id, 1, head)
    stage.append(run, _output("c2"))
    assert _compact(stage, thread_id, 1, head + 1).to_seq == head + 1
    stage.append(run, delta("That was it."))
    with refused(ConflictReason.RANGE_REFUSED, from_seq=None, to_seq=None):
        _compact(stage, thread_id, head + 2, head + 2)
    stage.append(run, {"type": "step-finish"})
    assert _compact(stage, thread_id, head + 2, head + 2).n == 2


@pytest.mark.guarantee("G-HIST-10", "G-HIST-03")
def test_a_call_that_was_told_as_pending_can_be_summarised(stage: Stage) -> None:
    run = stage.open_turn()
    thread_id = str(run["thread_id"])
    stage.append(run, STEP, propose("c1"))  # 3, 4
    with refused(ConflictReason.RANGE_REFUSED, from_seq=1, to_seq=3):
        _compact(stage, thread_id, 1, 4)
    stage.append(run, STEP)
    _compact(stage, thread_id, 1, 4)
    stage.append(run, _output("c1"))
    assert _told(stage, thread_id) == ["summary They talked.", "note c1=output"]
    note = stage.me.history(thread_id=thread_id).messages[1]
    assert note.result.tool == "refund"


@pytest.mark.guarantee("G-HIST-10")
def test_what_lies_in_a_range_is_what_a_summary_is_made_of(stage: Stage) -> None:
    """What was said while calls ran stands behind their results, and within the same numbers."""
    thread_id = _talk(stage)
    told = stage.me.history(thread_id=thread_id)
    tool = told.messages[2]
    within = told.within(1, tool.to_seq)
    assert brief(within) == ALL[:4]
    _compact(stage, thread_id, 1, tool.to_seq)
    assert _told(stage, thread_id) == ["summary They talked.", *ALL[4:]]


@pytest.mark.guarantee("G-HIST-11")
def test_the_log_is_not_touched_and_keys_answer_as_before(stage: Stage) -> None:
    thread_id = stage.me.create_thread().id
    sent = stage.me.send_message(thread_id=thread_id, text="one", key="k-1")
    run = stage.take(thread_id)
    stage.append(run, delta("uno"), batch=1)
    stage.append(run, {"type": "turn-finish", "reason": "done"}, batch=2)
    again = stage.me.send_message(thread_id=thread_id, text="one", key="k-1")
    before = dump(stage.engine)
    _compact(stage, thread_id, 1, 4)
    after = dump(stage.engine)
    assert [name for name in before if before[name] != after[name]] == ["assistant_compactions"]
    assert stage.me.send_message(thread_id=thread_id, text="one", key="k-1") == again
    assert (again.first_seq, again.duplicate) == (sent.first_seq, True)
    assert len(stage.me.read_events(thread_id=thread_id).events) == 4
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-02", "G-HIST-10", "G-HIST-11")
def test_what_waits_is_in_no_history_and_makes_no_summary_stale(stage: Stage) -> None:
    """And what was said can be summarised before any run has taken its turn."""
    run = stage.open_turn(text="one")
    thread_id = str(run["thread_id"])
    stage.append(run, delta("uno"), {"type": "step-finish"})  # 3, 4
    told = stage.bot.history(thread_id=thread_id)
    sent = {"thread_id": thread_id, "text": "two", "key": "k", "when_busy": "queue"}
    stage.me.send_message(**sent)
    stage.me.send_message(thread_id=thread_id, text="three", when_busy="queue")
    assert stage.bot.history(thread_id=thread_id) == told
    _compact(stage, thread_id, 1, 4, expected_head=told.head_seq)
    stage.rest(run)  # 5, and 6, 7: "two" opens
    assert _told(stage, thread_id) == ["summary They talked.", "user two"]
    _compact(stage, thread_id, 1, 7, summary="Two, too.")
    run = stage.take(thread_id)
    stage.append(run, delta("due"))
    assert _told(stage, thread_id) == ["summary Two, too.", "assistant due()"]
    again = stage.me.send_message(**sent)
    assert (again.state, again.turn, again.first_seq) == ("opened", 2, 6)
    stage.rest(run)
    assert _told(stage, thread_id)[2:] == ["user three"]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-HIST-12")
def test_a_later_summary_covers_earlier_ones_wholly_or_not_at_all(stage: Stage) -> None:
    thread_id = _talk(stage)
    _compact(stage, thread_id, 1, 3, summary="first")
    _compact(stage, thread_id, 12, 13, summary="second")
    assert _told(stage, thread_id)[:3] == ["summary first", *ALL[1:3]]
    for first, last, inner in ((2, 11, (4, 11)), (4, 12, (4, 11)), (13, 16, (14, 16))):
        with refused(ConflictReason.RANGE_REFUSED, from_seq=inner[0], to_seq=inner[1]):
            _compact(stage, thread_id, first, last)
    with refused(ConflictReason.RANGE_REFUSED, from_seq=None, to_seq=None):
        _compact(stage, thread_id, 2, 3)
    third = _compact(stage, thread_id, 1, 13, summary="third")
    assert (third.n, third.covered_by) == (3, None)
    assert _told(stage, thread_id) == ["summary third", *ALL[5:]]
    # The same range with better words covers the older ones, too.
    _compact(stage, thread_id, 1, 13, summary="fourth")
    _compact(stage, thread_id, 18, 21, summary="fifth")
    assert _told(stage, thread_id) == ["summary fourth", *ALL[5:7], "summary fifth"]
    _compact(stage, thread_id, 1, 21, summary="all")
    assert _told(stage, thread_id) == ["summary all"]
    made = stage.me.list_compactions(thread_id=thread_id).items
    assert [(one.n, one.summary, one.covered_by) for one in made] == [
        *((1, "first", 3), (2, "second", 3), (3, "third", 4), (4, "fourth", 6)),
        *((5, "fifth", 6), (6, "all", None)),
    ]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-HIST-12")
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_pages_of_summaries_join(stage: Stage, limit: int) -> None:
    thread_id = _talk(stage)
    made = [_compact(stage, thread_id, 1, last) for last in (1, 10, 12)]
    found, cursor = [], None
    while True:
        page = stage.bot.list_compactions(thread_id=thread_id, limit=limit, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    assert [one.n for one in found] == [one.n for one in made]
    assert found[-1] == made[-1]


@pytest.mark.guarantee("G-HIST-13")
def test_a_summary_of_what_has_gone_on_is_refused(stage: Stage) -> None:
    thread_id = _talk(stage)
    before = dump(stage.engine)
    for head in (0, 20, 22, 2**63 - 1):
        with refused(ConflictReason.STALE_HEAD, head_seq=21):
            _compact(stage, thread_id, 1, 3, expected_head=head)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-HIST-13")
def test_a_closed_thread_takes_no_summary(stage: Stage) -> None:
    thread_id = _talk(stage)
    _compact(stage, thread_id, 1, 3)
    stage.me.close_thread(thread_id=thread_id)
    assert _compact(stage, thread_id, 1, 3).duplicate
    with refused(ConflictReason.THREAD_CLOSED):
        _compact(stage, thread_id, 1, 13)


@pytest.mark.guarantee("G-HIST-14")
def test_a_lost_answer_is_given_again(stage: Stage) -> None:
    thread_id = _talk(stage)
    first = _compact(stage, thread_id, 1, 13)
    stage.me.send_message(thread_id=thread_id, text="four")
    before = dump(stage.engine)
    again = _compact(stage, thread_id, 1, 13, expected_head=21)
    assert again == first.model_copy(update={"duplicate": True})
    with refused(ConflictReason.STALE_HEAD):
        _compact(stage, thread_id, 1, 13, expected_head=21, summary="Other words.")
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-HIST-14", "G-HIST-12")
def test_a_lost_answer_takes_nothing_back_that_came_later(stage: Stage) -> None:
    thread_id = _talk(stage)
    first = _compact(stage, thread_id, 1, 13)
    second = _compact(stage, thread_id, 1, 13, summary="Other words.")
    again = _compact(stage, thread_id, 1, 13)
    assert again == first.model_copy(update={"duplicate": True, "covered_by": second.n})
    third = _compact(stage, thread_id, 1, 21, summary="All of it.")
    again = _compact(stage, thread_id, 1, 13, summary="Other words.")
    assert again == second.model_copy(update={"duplicate": True, "covered_by": third.n})
    told = stage.bot.history(thread_id=thread_id).messages
    assert [message.text for message in told if message.role == "summary"] == ["All of it."]


@pytest.mark.guarantee("G-HIST-10")
def test_a_range_or_a_summary_that_cannot_be_is_refused_before_the_lock(stage: Stage) -> None:
    thread_id = _talk(stage)
    few = Assistant(stage.engine, limits=Limits(summary_bytes=10)).acting_as(ROBOT)
    given = {"thread_id": thread_id, "expected_head": 21}
    with pytest.raises(ValidationFailed) as wrong:
        few.compact(**given, from_seq=1, to_seq=3, summary="é" * 6)
    assert wrong.value.facts["path"] == "summary"
    assert few.compact(**given, from_seq=1, to_seq=3, summary="é" * 5).summary == "é" * 5
    with pytest.raises(ValidationFailed):
        few.compact(**given, from_seq=4, to_seq=3, summary="x")
    with refused(ConflictReason.RANGE_REFUSED, from_seq=4, to_seq=21):
        few.compact(**given, from_seq=4, to_seq=22, summary="x")


@pytest.mark.guarantee("G-HIST-10")
def test_summaries_are_made_for_runs_of_the_tenant_alone(stage: Stage) -> None:
    thread_id = _talk(stage)
    twin = stage.assistant.acting_as(TWIN["run"])
    with pytest.raises(NotFound):
        twin.compact(thread_id=thread_id, from_seq=1, to_seq=3, summary="x", expected_head=21)
    _compact(stage, thread_id, 1, 3)
    plain = stage.me.call("assistant/history", {"thread_id": thread_id})
    assert History.model_validate(plain).messages[0].role == "summary"
