"""The log as messages: what stands where, what is frozen when, and what is left out."""

import pytest

from engine_assistant.model.rows import CompactionRow
from engine_assistant.model.views.history import HistoryResult, HistoryTool
from engine_assistant.rules.history import TOLD, tell, untold_calls
from tests.rig.chats import refused
from tests.rig.logs import (
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
    seed,
    settled,
    summary,
    told,
    word,
)

START: Body = {"type": "turn-start", "v": 1}

FROZEN = {
    "a result that comes before the next answer": (
        (propose("c"), closed("c"), output("c", late=True), STEP),
        ["tool c=output"],
    ),
    "a result that comes after it": (
        (propose("c"), closed("c"), STEP, output("c", late=True)),
        ["tool c=unknown", "note c=output"],
    ),
    "a failure that comes after it": (
        (propose("c"), closed("c"), STEP, failure("c", late=True)),
        ["tool c=unknown", "note c=error"],
    ),
    "a result that comes within the next answer": (
        (propose("c"), closed("c"), STEP, word("a"), output("c", late=True), word("b")),
        ["tool c=unknown", "assistant ab()", "note c=output"],
    ),
    "a result that comes while the next answer's calls run": (
        (propose("c"), closed("c"), STEP, propose("d"), output("c", late=True), output("d")),
        ["tool c=unknown", "assistant (d)", "tool d=output", "note c=output"],
    ),
    "a word begins the next answer, too": (
        (propose("c"), closed("c"), word("a"), output("c", late=True)),
        ["tool c=unknown", "assistant a()", "note c=output"],
    ),
    "so does a call": (
        (propose("c"), closed("c"), propose("d"), output("c", late=True)),
        ["tool c=unknown", "assistant (d)", "tool d=pending", "note c=output"],
    ),
    "a message of the person freezes nothing": (
        (propose("c"), closed("c"), DONE, say("well?"), output("c", late=True)),
        ["tool c=output", "user well?"],
    ),
    "a call that nobody answered yet": (
        (propose("c"), STEP, word("a"), output("c"), word("b")),
        ["tool c=pending", "assistant ab()", "note c=output"],
    ),
    "a call that nobody answered, and is closed": (
        (propose("c"), STEP, word("a"), closed("c", "cancelled"), DONE),
        ["tool c=pending", "assistant a()", "note c=cancelled"],
    ),
    "a call that ran again in time": (
        (propose("c"), closed("c"), retried("c"), output("c"), STEP),
        ["tool c=output"],
    ),
    "a call that runs again": ((propose("c"), closed("c"), retried("c")), ["tool c=pending"]),
    "a call that was claimed again": (
        (propose("c"), claimed("c"), closed("c"), claimed("c"), failure("c"), STEP),
        ["tool c=error"],
    ),
    "a call that ran again too late": (
        (propose("c"), closed("c"), STEP, retried("c"), output("c")),
        ["tool c=unknown", "note c=output"],
    ),
    "a person who knows that it happened, in time": (
        (propose("c"), closed("c"), settled("c", happened=True, value=7)),
        ["tool c=output"],
    ),
    "a person who knows that it did not, in time": (
        (propose("c"), closed("c"), settled("c", happened=False)),
        ["tool c=cancelled"],
    ),
    "a person who knows it too late": (
        (propose("c"), closed("c"), STEP, settled("c", happened=False)),
        ["tool c=unknown", "note c=cancelled"],
    ),
    "an approval is no result": (
        (propose("c"), resolved("c", approved=True), claimed("c")),
        ["tool c=pending"],
    ),
    "a denial is one": ((propose("c"), resolved("c", approved=False)), ["tool c=denied"]),
}


@pytest.mark.guarantee("G-HIST-03")
@pytest.mark.parametrize("name", FROZEN)
def test_a_result_counts_until_the_next_answer_begins(name: str) -> None:
    bodies, expected = FROZEN[name]
    messages = told(say("hi"), START, STEP, *bodies)
    assert brief(messages)[2:] == expected
    assert refused(messages) is None


@pytest.mark.guarantee("G-HIST-01")
def test_an_answer_is_what_was_said_and_asked_for_at_once() -> None:
    messages = told(
        *(say("hi"), START, STEP, word("Let "), word("me."), propose("c1"), propose("c2")),
        *(output("c2"), output("c1"), STEP_DONE),
        *(word("And"), propose("c3"), output("c3"), word("Done."), DONE),
        *(say("thanks"), START, word("Welcome."), DONE),
    )
    assert brief(messages) == [
        *("user hi", "assistant Let me.(c1 c2)", "tool c1=output c2=output"),
        *("assistant And(c3)", "tool c3=output", "assistant Done.()"),
        *("user thanks", "assistant Welcome.()"),
    ]
    assert [message.turn for message in messages] == [1] * 6 + [2, 2]


@pytest.mark.guarantee("G-HIST-01")
def test_an_answer_that_broke_off_stays_what_it_was() -> None:
    """A run dies while it speaks; another one asks the model again."""
    messages = told(say(), START, STEP, word("Hel"), STEP, word("Hello."), DONE)
    assert brief(messages)[1:] == ["assistant Hel()", "assistant Hello.()"]
    assert refused(messages) is None


@pytest.mark.guarantee("G-HIST-01")
def test_a_turn_that_waited_goes_on_in_the_same_answer() -> None:
    messages = told(
        *(say(), START, STEP, propose("c1"), propose("c2"), RESTS),
        *(resolved("c1", approved=False), resolved("c2", approved=True), claimed("c2")),
        *(output("c2"), STEP, word("So."), DONE),
    )
    assert brief(messages)[1:] == [
        "assistant (c1 c2)",
        "tool c1=denied c2=output",
        "assistant So.()",
    ]


@pytest.mark.guarantee("G-HIST-05")
def test_what_is_said_while_calls_run_stands_behind_their_results() -> None:
    messages = told(say(), START, STEP, propose("c"), say("faster"), output("c"), STEP, word())
    assert brief(messages)[1:] == [
        "assistant (c)",
        "tool c=output",
        "user faster",
        "assistant word()",
    ]
    assert refused(messages) is None


@pytest.mark.guarantee("G-HIST-05")
def test_what_is_said_within_an_answer_parts_it() -> None:
    messages = told(say(), START, word("a"), say("faster"), word("b"), say("!"), DONE)
    assert brief(messages)[1:] == ["assistant a()", "user faster", "assistant b()", "user !"]


@pytest.mark.guarantee("G-HIST-05", "G-HIST-03")
def test_what_is_said_after_the_results_stands_there() -> None:
    messages = told(say(), START, propose("c"), output("c"), say("and?"), say("well?"), word())
    assert brief(messages)[2:] == ["tool c=output", "user and?", "user well?", "assistant word()"]


@pytest.mark.guarantee("G-HIST-01")
def test_a_call_that_is_proposed_anew_is_one_call() -> None:
    """Until it was told; then it stays what was told."""
    anew = propose("c", {"n": 2}, provider_call_id="p2")
    messages = told(say(), START, STEP, propose("c", {"n": 1}), propose("d"), anew, output("c"))
    assert brief(messages)[1:] == ["assistant (c d)", "tool c=output d=pending"]
    (call, _), answer = messages[1].calls, messages[1]
    assert (call.input, call.provider_call_id, call.tool) == ({"n": 2}, "p2", "look")
    assert (answer.from_seq, answer.to_seq) == (4, 6)
    messages = told(say(), START, STEP, propose("c", {"n": 1}), STEP, anew, output("c"))
    assert brief(messages)[1:] == ["assistant (c)", "tool c=pending", "note c=output"]
    assert messages[1].calls[0].input == {"n": 1}


@pytest.mark.guarantee("G-HIST-06")
def test_what_no_model_is_told_is_left_out() -> None:
    private = (
        {"type": "reasoning-delta", "text": "hm"},
        {"type": "data", "kind": "k", "payload": 1},
        {"type": "tool-progress", "call_id": "c", "payload": 1},
    )
    messages = told(
        *(say(), START, *private, STEP, word(""), *private, STEP, word("a"), *private, word("b")),
        *(propose("c"), *private, output("c"), *private, STEP, word(""), say("hm?"), DONE),
    )
    assert brief(messages) == ["user hello", "assistant ab(c)", "tool c=output", "user hm?"]
    kinds = {event.type for event in log(*private)}
    assert not kinds & TOLD


@pytest.mark.guarantee("G-HIST-06")
def test_an_event_of_a_newer_writer_is_passed_over() -> None:
    newer = {"type": "unknown", "name": "newer", "body": {"type": "newer"}}
    assert brief(told(say(), START, word("a"), newer, word("b"))) == [
        "user hello",
        "assistant ab()",
    ]


RESULTS = {
    "output": (
        (output("c", {"n": 1}),),
        {"status": "output", "output": {"n": 1}},
    ),
    "a result of nothing": ((output("c", None),), {"status": "output"}),
    "error": ((failure("c"),), {"status": "error", "code": "e", "message": "it broke"}),
    "denied": (
        (resolved("c", approved=False, reason="too much"),),
        {"status": "denied", "code": "denied", "reason": "too much"},
    ),
    "denied without a word": (
        (resolved("c", approved=False),),
        {"status": "denied", "code": "denied"},
    ),
    "a person knows what it gave": (
        (closed("c"), settled("c", happened=True, value=7)),
        {"status": "output", "output": 7, "reason": "she looked"},
    ),
    "a person knows that nothing happened": (
        (closed("c"), settled("c", happened=False)),
        {"status": "cancelled", "code": "cancelled", "reason": "she looked"},
    ),
    "pending": ((), {"status": "pending", "code": "pending"}),
} | {
    state: (
        (closed("c", state, "a word"),),
        {"status": state, "code": state, "reason": "a word"},
    )
    for state in ("expired", "superseded", "cancelled", "unknown")
}


@pytest.mark.guarantee("G-HIST-04")
@pytest.mark.parametrize("name", RESULTS)
def test_what_a_model_is_told_of_a_calls_end(name: str) -> None:
    bodies, expected = RESULTS[name]
    *_, tool = told(say(), START, propose("c"), *bodies)
    assert isinstance(tool, HistoryTool)
    (result,) = tool.results
    assert isinstance(result, HistoryResult)
    said = result.model_dump(mode="json", exclude_none=True)
    assert (said.pop("call_id"), said.pop("tool")) == ("c", "look")
    if result.status not in ("output", "error"):
        assert said.pop("message").endswith(".")
    assert said == expected


@pytest.mark.guarantee("G-HIST-09")
def test_each_message_carries_the_range_that_it_was_made_of() -> None:
    messages = told(
        *(say("a"), START, STEP, word("b"), word("c"), propose("c1"), propose("c2")),
        *(say("d"), output("c2"), output("c1"), STEP, propose("c3"), STEP, output("c3"), DONE),
    )
    assert [(m.role, m.from_seq, m.to_seq) for m in messages] == [
        *(("user", 1, 1), ("assistant", 4, 7), ("tool", 9, 10), ("user", 8, 8)),
        *(("assistant", 12, 12), ("tool", 12, 12), ("note", 14, 14)),
    ]


@pytest.mark.guarantee("G-SEED-04")
def test_what_was_said_before_comes_first() -> None:
    messages = told(seed("assistant", "Hi!"), seed("user", "x"), seed("user", "y"), say("z"), START)
    assert brief(messages) == ["assistant Hi!()", "user x", "user y", "user z"]
    assert [message.turn for message in messages] == [0, 0, 0, 1]
    assert refused(messages) is None


def _told_with(rows: list[CompactionRow], *bodies: Body) -> list[str]:
    """Tell what is left of a log when the ranges of these summaries are not read."""
    events = [
        event
        for event in log(*bodies)
        if not any(row.from_seq <= event.seq <= row.to_seq for row in rows)
    ]
    tools = dict.fromkeys(untold_calls(events), "look")
    messages = tell(events, rows, tools).messages
    assert refused(messages) is None
    return brief(messages)


TALK = (
    *(say("a"), START, STEP, propose("c"), closed("c"), DONE),  # 1 to 6
    *(say("b"), START, STEP, word("B"), DONE),  # 7 to 11
    *(say("c"), START, STEP, word("C"), DONE),  # 12 to 16
)


@pytest.mark.guarantee("G-HIST-10")
def test_a_summary_stands_where_its_messages_stood() -> None:
    first, second = summary(1, 1, 6, "one"), summary(2, 12, 16, "three")
    assert _told_with([first], *TALK)[:2] == ["summary one", "user b"]
    both = ["summary one", "user b", "assistant B()", "summary three"]
    assert _told_with([second, first], *TALK) == both
    assert _told_with([second], *TALK)[-2:] == ["assistant B()", "summary three"]
    assert _told_with([summary(3, 1, 16, "all")], *TALK) == ["summary all"]


@pytest.mark.guarantee("G-HIST-10", "G-HIST-03")
def test_a_result_of_a_call_in_a_summary_is_a_note_that_names_its_tool() -> None:
    late = output("c", "at last", late=True)
    rows = [summary(1, 1, 6)]
    assert _told_with(rows, *TALK[:6], late, *TALK[6:8]) == [
        *("summary They talked.", "note c=output", "user b"),
    ]
    events = log(*TALK[:6], late)[6:]
    assert untold_calls(events) == {"c"}
    (_, note) = tell(events, rows, {"c": "look"}).messages
    assert (note.result.tool, note.result.output) == ("look", "at last")
    assert untold_calls(log(*TALK, late)) == set()
    assert untold_calls(log(resolved("x", approved=True), claimed("x"))) == set()
