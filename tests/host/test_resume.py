"""Going on where an earlier run stopped: calls that have no result yet."""

import pytest

from engine_assistant.host import (
    AssistantMessage,
    AwaitingApproval,
    Status,
    Text,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    ToolResult,
    ToolReturned,
    UserMessage,
    open_calls,
)
from engine_assistant.testing.replay import answer
from tests.host.stage import HELLO, Memory, SomeTools, call, converse, scripted

FIRST, SECOND, THIRD = call(n=1), call(n=2), call(n=3)
ASKED = AssistantMessage((Text("I look."), FIRST, SECOND, THIRD))
PARTLY = [HELLO, ASKED, ToolMessage((ToolResult(SECOND.call_id, "seen"),))]


@pytest.mark.guarantee("G-HOST-12")
def test_only_calls_without_a_result_run_and_the_model_sees_each_result_once() -> None:
    tools, memory = SomeTools(), Memory()
    model, script = scripted(answer("Done"))
    outcome = converse(model, messages=PARTLY, tools=tools, hooks=memory, resume=True)
    assert tools.ran == [FIRST, THIRD]
    assert (outcome.status, outcome.steps) == (Status.DONE, 1)
    (request,) = script.requests("model")
    results = [r.call_id for m in request.messages[2:] for r in m.results]
    assert results == [SECOND.call_id, FIRST.call_id, THIRD.call_id]
    # They were judged and kept in the run before: only what is new is handed over.
    assert memory.trace[:2] == ["results", "results"]
    assert [step.number for step in memory.steps] == [0, 0, 1]


@pytest.mark.guarantee("G-HOST-11", "G-HOST-12")
def test_a_call_that_still_awaits_approval_is_not_asked_about_twice_by_the_model() -> None:
    async def do(one: ToolCall) -> ToolOutcome:
        return AwaitingApproval() if one is THIRD else ToolReturned("approved and run")

    model, script = scripted()
    outcome = converse(model, messages=PARTLY, tools=SomeTools(do), resume=True)
    assert (outcome.status, outcome.steps) == (Status.AWAITING_APPROVAL, 0)
    assert (outcome.awaiting, script.count("model")) == ((THIRD,), 0)
    assert open_calls(outcome.messages) == (THIRD,)


@pytest.mark.guarantee("G-HOST-12")
def test_a_result_of_an_open_call_can_force_text() -> None:
    async def do(_: ToolCall) -> ToolOutcome:
        return ToolReturned(None, force_text=True)

    model, script = scripted(answer("Done"))
    converse(model, messages=PARTLY, tools=SomeTools(do), resume=True)
    assert script.requests("model")[0].text_only


@pytest.mark.guarantee("G-HOST-12")
def test_without_being_told_to_a_history_never_makes_anything_run() -> None:
    tools = SomeTools()
    model, script = scripted(answer("never"))
    with pytest.raises(ValueError, match="resume=True"):
        converse(model, messages=PARTLY, tools=tools)
    assert (tools.ran, script.count("model")) == ([], 0)


@pytest.mark.guarantee("G-HOST-12")
@pytest.mark.parametrize(
    "history",
    [
        [*PARTLY, UserMessage("Never mind.")],
        [*PARTLY, AssistantMessage((Text("I could not look."),)), UserMessage("Go on.")],
        [HELLO, ASKED, ToolMessage(tuple(ToolResult(c.call_id, 1) for c in ASKED.calls))],
        [HELLO],
    ],
    ids=["the person spoke", "long ago", "all have results", "no calls"],
)
def test_calls_that_are_over_stay_over_however_often_the_history_is_used(history: list) -> None:
    tools = SomeTools()
    for _ in range(3):
        model, script = scripted(answer("Done"))
        outcome = converse(model, messages=history, tools=tools, resume=True)
        history = [*outcome.messages, UserMessage("And now?")]
        assert script.count("model") == 1
    assert (tools.ran, open_calls(history)) == ([], ())
