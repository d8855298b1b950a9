"""One step after the other: what is asked, what is kept, what runs, and how it ends."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_assistant.host import (
    AssistantMessage,
    AwaitingApproval,
    Hooks,
    InvalidResponse,
    InvalidToolState,
    Message,
    ModelResult,
    ProviderState,
    Reasoning,
    ReasoningDelta,
    ResponseNotComplete,
    Status,
    Step,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallStarted,
    ToolFailed,
    ToolInputDelta,
    ToolMessage,
    ToolOutcome,
    ToolResult,
    ToolReturned,
    UserMessage,
)
from engine_assistant.testing.replay import Attempt, answer
from tests.host.stage import HELLO, LOOK, Memory, SomeTools, call, converse, scripted

STATE = ProviderState(format="test/1", provider="test", data="{}")


def result(*blocks: Text | Reasoning | ToolCall, stop: str | None, **more: object) -> ModelResult:
    return ModelResult(message=AssistantMessage(blocks, STATE), stop_reason=stop, **more)


# ---------------------------------------------------------------- what is asked


@pytest.mark.guarantee("G-HOST-05")
def test_the_last_step_and_a_conversation_without_tools_forbid_tools_and_still_name_them() -> None:
    model, script = scripted(answer(call()), answer(call()), answer("Done"))
    outcome = converse(model, tools=SomeTools(), max_steps=3)
    asked = script.requests("model")
    assert [one.text_only for one in asked] == [False, False, True]
    assert [one.tools for one in asked] == [(LOOK,)] * 3
    assert (outcome.status, outcome.steps) == (Status.DONE, 3)

    model, script = scripted(answer("Done"))
    converse(model)
    assert [one.text_only for one in script.requests("model")] == [True]


@pytest.mark.guarantee("G-HOST-05")
@pytest.mark.parametrize("outcome", [ToolReturned(None, True), ToolFailed("no", "No.", True)])
def test_an_outcome_can_force_text_for_the_next_step_only(outcome: ToolOutcome) -> None:
    left = [outcome, ToolReturned(None)]

    async def do(_: ToolCall) -> ToolOutcome:
        return left.pop(0)

    refused = [True, False]

    class Strict(Hooks):
        async def before_response(self, result: ModelResult, step: Step) -> list[Message] | None:
            return [UserMessage("Again.")] if step.text_only and refused.pop(0) else None

    model, script = scripted(
        answer(call(), call()), answer("A"), answer("B"), answer(call()), answer("C")
    )
    # The first call forces text, the second does not lift it, and neither does a correction.
    ended = converse(model, tools=SomeTools(do), hooks=Strict())
    assert [one.text_only for one in script.requests("model")] == [False, True, True]
    assert ended.result is not None
    assert ended.result.message.text == "B"


@pytest.mark.guarantee("G-HOST-05")
def test_a_call_where_the_model_had_to_speak_ends_with_limit_and_does_not_run() -> None:
    tools, memory = SomeTools(), Memory()
    model, _ = scripted(answer("Let me see.", call()))
    outcome = converse(model, tools=tools, hooks=memory, max_steps=1)
    assert (outcome.status, outcome.steps) == (Status.LIMIT, 1)
    assert (tools.ran, memory.kept) == ([], [])

    model, _ = scripted(answer(call()))
    assert converse(model, hooks=memory).status is Status.LIMIT
    assert memory.kept == []


def test_messages_are_copied_and_settings_and_system_are_passed_on() -> None:
    async def system(step: Step) -> str:
        return f"This is step {step.number}."

    said = [HELLO]
    model, script = scripted(answer(call()), answer("Done"))
    settings = {"temperature": 0}
    outcome = converse(model, messages=said, tools=SomeTools(), system=system, settings=settings)
    first, second = script.requests("model")
    assert said == [HELLO]
    assert (first.system, second.system) == ("This is step 1.", "This is step 2.")
    assert first.settings == settings
    assert [one.role for one in second.messages] == ["user", "assistant", "tool"]
    assert [one.role for one in outcome.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    "wrong", [{"messages": []}, {"max_steps": 0}, {"max_steps": True}, {"max_steps": 1.5}]
)
def test_what_can_never_work_is_refused_before_anything_is_asked(wrong: dict[str, object]) -> None:
    model, script = scripted(answer("Hi"))
    with pytest.raises(ValueError, match=r"conversation|max_steps"):
        converse(model, **wrong)
    assert script.count("model") == 0


@pytest.mark.guarantee("G-HOST-18")
def test_what_the_person_says_meanwhile_is_asked_for_before_each_request() -> None:
    said = [[], [UserMessage("In euros, please.")], []]

    class Queue(Hooks):
        async def next_messages(self, step: Step) -> Sequence[UserMessage]:
            return said[step.number - 1]

    model, script = scripted(answer(call()), answer(call()), answer("Done"))
    converse(model, tools=SomeTools(), hooks=Queue())
    _, second, third = script.requests("model")
    assert [one.role for one in second.messages] == ["user", "assistant", "tool", "user"]
    assert third.messages[:4] == second.messages


# ---------------------------------------------------------------- in which order


@pytest.mark.guarantee("G-HOST-01", "G-HOST-06", "G-HOST-09")
def test_the_order_of_a_step_never_changes() -> None:
    memory = Memory()

    async def do(one: ToolCall) -> ToolOutcome:
        memory.trace.append(f"run {one.input['n']}")
        return ToolReturned(None)

    model, script = scripted(answer("A", "B", call(n=1), call(n=2)), answer("Done"))
    converse(model, tools=SomeTools(do), hooks=memory)
    assert memory.trace == [
        *["event"] * 4,
        *["judge", "answer"],
        *["run 1", "results", "run 2", "results"],
        *["event", "judge", "answer"],
    ]
    first, second = [one for one in memory.kept if isinstance(one, ToolMessage)]
    assert script.requests("model")[1].messages[-2:] == (first, second)


@pytest.mark.guarantee("G-HOST-09")
def test_events_are_told_in_order_and_the_result_is_not_one_of_them() -> None:
    one = call()
    told = [
        ReasoningDelta(text="Hm."),
        TextDelta(text="I "),
        TextDelta(text="look."),
        ToolCallStarted(one.call_id, "look"),
        ToolInputDelta(one.call_id, "{}"),
    ]
    whole = result(Reasoning("Hm."), Text("I look."), one, stop=StopReason.TOOL_CALL)
    memory = Memory()
    model, _ = scripted([*told, whole], answer("Done"))
    converse(model, tools=SomeTools(), hooks=memory)
    assert memory.events == [*told, TextDelta(text="Done")]


@pytest.mark.guarantee("G-HOST-07")
def test_what_is_kept_holds_nothing_private_and_the_model_gets_all_of_it_back() -> None:
    one = call()
    whole = result(Reasoning("secret"), Text("I look."), one, stop=StopReason.TOOL_CALL)
    memory = Memory()
    model, script = scripted([TextDelta(text="I look."), whole], answer("Done"))
    outcome = converse(model, tools=SomeTools(), hooks=memory)
    assert memory.kept[0] == AssistantMessage((Text("I look."), one))
    assert script.requests("model")[1].messages[1] == whole.message
    assert outcome.messages[1] == whole.message
    # For whoever keeps provider state apart: it stands in the step, when the answer is kept.
    (step,) = [step for step in memory.answered if step.number == 1]
    assert step.result.message.state == STATE
    assert "secret" not in repr(outcome) + repr(memory.steps)


# ---------------------------------------------------------------- how an answer is judged


BROKEN_OFF: list[Attempt] = [
    [TextDelta(text="I wou"), ConnectionError("cut")],
    [*answer("I would", call()), ConnectionError("cut after the result")],
]


@pytest.mark.guarantee("G-HOST-01", "G-HOST-10")
@pytest.mark.parametrize("attempt", BROKEN_OFF)
def test_of_an_answer_that_broke_off_nothing_is_kept_or_run(attempt: Attempt) -> None:
    tools, memory = SomeTools(), Memory()
    model, script = scripted(attempt, answer("never"))
    with pytest.raises(ConnectionError):
        converse(model, tools=tools, hooks=memory)
    assert (tools.ran, memory.kept, script.count("model")) == ([], [], 1)


@pytest.mark.guarantee("G-HOST-02")
@pytest.mark.parametrize("reason", [None, "paused", "error", "guardrail_intervened", ""])
def test_an_answer_without_an_end_is_an_error_and_is_not_continued(reason: str | None) -> None:
    tools, memory = SomeTools(), Memory()
    model, script = scripted([result(call(), stop=reason)], answer("never"))
    with pytest.raises(ResponseNotComplete) as raised:
        converse(model, tools=tools, hooks=memory)
    assert raised.value.facts == {"stop_reason": reason}
    assert (tools.ran, memory.trace, script.count("model")) == ([], [], 1)


@pytest.mark.guarantee("G-HOST-04")
@pytest.mark.parametrize("stop", ["end_turn", "stop_sequence", "refusal"])
def test_an_end_with_calls_is_a_contradiction(stop: str) -> None:
    memory = Memory()
    model, _ = scripted([result(call(), stop=stop)])
    with pytest.raises(InvalidToolState) as raised:
        converse(model, tools=SomeTools(), hooks=memory)
    assert raised.value.facts == {"stop_reason": stop}
    assert memory.trace == []


@pytest.mark.guarantee("G-HOST-04")
def test_a_stop_for_calls_without_one_is_a_contradiction() -> None:
    model, _ = scripted([result(stop=StopReason.TOOL_CALL)])
    with pytest.raises(InvalidToolState):
        converse(model, tools=SomeTools())


@pytest.mark.guarantee("G-HOST-03")
def test_an_answer_cut_at_its_longest_ends_the_conversation_before_anything_else() -> None:
    tools, memory = SomeTools(), Memory()
    cut = result(call(), stop=StopReason.MAX_TOKENS, error=RuntimeError("and this"))
    model, _ = scripted([cut])
    outcome = converse(model, tools=tools, hooks=memory)
    assert (outcome.status, outcome.result) == (Status.MAX_TOKENS, cut)
    assert (tools.ran, memory.trace) == ([], [])


@pytest.mark.guarantee("G-HOST-02")
def test_an_error_that_the_answer_carries_comes_before_its_reason() -> None:
    model, _ = scripted([result(stop="nonsense", error=RuntimeError("its own tool failed"))])
    with pytest.raises(RuntimeError, match="its own tool failed"):
        converse(model)


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (StopReason.END_TURN, Status.DONE),
        (StopReason.STOP_SEQUENCE, Status.DONE),
        (StopReason.REFUSAL, Status.REFUSED),
    ],
)
def test_a_reply_is_kept_whether_it_agrees_or_declines(stop: StopReason, status: Status) -> None:
    memory = Memory()
    model, _ = scripted(answer("So it is.", stop_reason=stop))
    outcome = converse(model, hooks=memory)
    assert outcome.status is status
    assert memory.kept == [AssistantMessage((Text("So it is."),))]


WRONG: dict[str, Attempt] = {
    "two results": [*answer("A"), answer("A")[-1]],
    "an event after the result": [*answer("A"), ReasoningDelta(text="B")],
    "no result": [TextDelta(text="A")],
    "nothing": [],
    "another text": [TextDelta(text="A"), result(Text("B"), stop="end_turn")],
    "text that was not streamed": [result(Text("B"), stop="end_turn")],
}


@pytest.mark.guarantee("G-HOST-02")
@pytest.mark.parametrize("attempt", WRONG.values(), ids=WRONG)
def test_a_client_that_breaks_the_contract_is_found_out(attempt: Attempt) -> None:
    memory = Memory()
    model, _ = scripted(attempt)
    with pytest.raises(InvalidResponse):
        converse(model, hooks=memory)
    assert memory.kept == []


# ---------------------------------------------------------------- the host's own judgement


@pytest.mark.guarantee("G-HOST-08")
def test_a_corrected_answer_is_not_kept_nor_run_and_uses_one_step() -> None:
    class Strict(Memory):
        async def before_response(self, result: ModelResult, step: Step) -> list[Message] | None:
            self.trace.append(f"judge {step.number}")
            return [UserMessage("Ask first.")] if step.number == 1 else None

    tools, memory = SomeTools(), Strict()
    rejected = call(n=1)
    model, script = scripted(answer(rejected), answer("May I?"))
    outcome = converse(model, tools=tools, hooks=memory)
    assert (outcome.status, outcome.steps, tools.ran) == (Status.DONE, 2, [])
    assert memory.kept == [AssistantMessage((Text("May I?"),))]
    second = script.requests("model")[1]
    assert second.messages[1].calls == (rejected,)
    assert second.messages[2] == UserMessage("Ask first.")


@pytest.mark.guarantee("G-HOST-08")
def test_a_correction_on_the_last_step_ends_with_limit() -> None:
    class Never(Hooks):
        async def before_response(self, result: ModelResult, step: Step) -> list[Message]:
            return [UserMessage("No.")]

    model, _ = scripted(answer("A"), answer("B"))
    outcome = converse(model, hooks=Never(), max_steps=2)
    assert (outcome.status, outcome.steps) == (Status.LIMIT, 2)


def test_an_empty_correction_is_a_mistake() -> None:
    class Empty(Hooks):
        async def before_response(self, result: ModelResult, step: Step) -> list[Message]:
            return []

    model, _ = scripted(answer("A"))
    with pytest.raises(ValueError, match="correction"):
        converse(model, hooks=Empty())


# ---------------------------------------------------------------- tracking a request


def test_a_request_can_be_wrapped_and_asked_twice() -> None:
    class Twice(Hooks):
        async def track(
            self, request: Callable[[], Awaitable[ModelResult]], step: Step
        ) -> ModelResult:
            await request()
            return await request()

    model, script = scripted(answer("A"), answer("B"))
    outcome = converse(model, hooks=Twice())
    assert outcome.result is not None
    assert (outcome.result.message.text, script.count("model")) == ("B", 2)


def test_a_wrapper_that_loses_the_result_is_a_mistake() -> None:
    class Lost(Hooks):
        async def track(self, request: Callable[[], Awaitable[ModelResult]], step: Step) -> None:
            await request()

    model, _ = scripted(answer("A"))
    with pytest.raises(TypeError, match="track"):
        converse(model, hooks=Lost())


# ---------------------------------------------------------------- calls


@pytest.mark.guarantee("G-HOST-06")
def test_each_result_names_its_call_and_says_whether_it_is_an_error() -> None:
    async def do(one: ToolCall) -> ToolOutcome:
        return ToolReturned(None) if one.input["n"] == 1 else ToolFailed("lost", "It is lost.")

    first, second = call(n=1), call(n=2)
    memory = Memory()
    model, _ = scripted(answer(first, second), answer("Done"))
    converse(model, tools=SomeTools(do), hooks=memory)
    assert memory.kept[1:3] == [
        ToolMessage((ToolResult(first.call_id, None, is_error=False),)),
        ToolMessage(
            (ToolResult(second.call_id, {"code": "lost", "message": "It is lost."}, is_error=True),)
        ),
    ]
    step = next(step for step in memory.steps if step.calls == (second,))
    assert step.outcomes == (ToolFailed("lost", "It is lost."),)


@pytest.mark.guarantee("G-HOST-10")
def test_an_error_of_the_hosts_ends_it_and_what_was_kept_remains() -> None:
    async def do(one: ToolCall) -> ToolOutcome:
        if one.input["n"] == 2:
            raise LookupError("the host's own")
        return ToolReturned("first")

    memory = Memory()
    model, script = scripted(answer(call(n=1), call(n=2), call(n=3)), answer("never"))
    tools = SomeTools(do)
    with pytest.raises(LookupError):
        converse(model, tools=tools, hooks=memory)
    assert [one.role for one in memory.kept] == ["assistant", "tool"]
    assert ([one.input["n"] for one in tools.ran], script.count("model")) == ([1, 2], 1)


@pytest.mark.guarantee("G-HOST-11")
def test_calls_that_await_approval_get_no_result_and_the_conversation_rests() -> None:
    async def do(one: ToolCall) -> ToolOutcome:
        return AwaitingApproval() if one.input["gated"] else ToolReturned("looked")

    first, second, third = call(gated=True), call(gated=False), call(gated=True)
    memory = Memory()
    model, script = scripted(answer(first, second, third), answer("never"))
    outcome = converse(model, tools=SomeTools(do), hooks=memory)
    assert (outcome.status, outcome.awaiting) == (Status.AWAITING_APPROVAL, (first, third))
    assert memory.kept[1:] == [ToolMessage((ToolResult(second.call_id, "looked"),))]
    assert script.count("model") == 1


@pytest.mark.guarantee("G-HOST-13")
def test_every_call_has_an_id_of_ours_whatever_the_model_calls_it() -> None:
    ours = []

    async def do(one: ToolCall) -> ToolOutcome:
        ours.append(one.call_id)
        assert one.provider_call_id == "call_0"
        return ToolReturned(None)

    model, _ = scripted(answer(call(), call()), answer(call()), answer("Done"))
    converse(model, tools=SomeTools(do))
    assert len(set(ours)) == 3
    assert "call_0" not in ours


@pytest.mark.guarantee("G-HOST-13")
def test_two_calls_never_share_an_id() -> None:
    one = call()
    for attempts in ([answer(one, one)], [answer(one), answer(replace(one, input={}))]):
        model, _ = scripted(*attempts)
        with pytest.raises(InvalidToolState):
            converse(model, tools=SomeTools())


@pytest.mark.parametrize("wrong", [None, {"output": 1}, [ToolReturned(1), ToolReturned(2)]])
def test_tools_must_answer_with_an_outcome(wrong: object) -> None:
    async def do(_: ToolCall) -> object:
        return wrong

    model, _ = scripted(answer(call()))
    with pytest.raises(TypeError, match="outcome"):
        converse(model, tools=SomeTools(do))


class Batch:
    """Tools that run all calls of an answer together."""

    definitions = (LOOK,)

    def __init__(self, *outcomes: ToolOutcome) -> None:
        self.outcomes = outcomes
        self.asked: list[Sequence[ToolCall]] = []

    def bind(self, call: ToolCall) -> ToolCall:
        return call

    async def execute_all(self, calls: Sequence[ToolCall], step: Step) -> Sequence[ToolOutcome]:
        self.asked.append(calls)
        return self.outcomes


@pytest.mark.guarantee("G-HOST-17")
def test_a_batch_runs_once_for_an_answer_and_its_results_are_handed_over_together() -> None:
    first, second, third = call(n=1), call(n=2), call(n=3)
    tools = Batch(ToolReturned(1), AwaitingApproval(), ToolFailed("no", "No."))
    memory = Memory()
    model, _ = scripted(answer(first, second, third))
    outcome = converse(model, tools=tools, hooks=memory)
    assert tools.asked == [(first, second, third)]
    (results,) = memory.kept[1:]
    assert [one.call_id for one in results.results] == [first.call_id, third.call_id]
    assert memory.steps[-1].calls == (first, third)
    assert (outcome.status, outcome.awaiting) == (Status.AWAITING_APPROVAL, (second,))


@pytest.mark.guarantee("G-HOST-17")
def test_a_batch_must_answer_for_each_call() -> None:
    model, _ = scripted(answer(call(), call()))
    with pytest.raises(TypeError, match="each call"):
        converse(model, tools=Batch(ToolReturned(1)))


class Unable:
    """Tools that nobody can run."""

    definitions = (LOOK,)

    def bind(self, call: ToolCall) -> ToolCall:
        return call


class Both(Batch, SomeTools):
    pass


@pytest.mark.guarantee("G-HOST-01")
@pytest.mark.parametrize("tools", [Both(), Unable(), [LOOK], object()])
def test_tools_that_could_not_run_are_refused_before_anything_is_asked(tools: object) -> None:
    memory = Memory()
    model, script = scripted(answer(call()))
    with pytest.raises(TypeError, match="not both"):
        converse(model, tools=tools, hooks=memory)
    assert (memory.trace, script.count("model")) == ([], 0)


HOOKS = {
    "next_messages": [],
    "track": [],
    "on_event": [],
    "before_response": [],
    "on_assistant_message": [],
    "on_tool_results": ["run 1"],
}


@pytest.mark.guarantee("G-HOST-10")
@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_of_a_hook_reaches_the_caller_and_nothing_more_starts(hook: str) -> None:
    ran: list[str] = []

    async def do(one: ToolCall) -> ToolOutcome:
        ran.append(f"run {one.input['n']}")
        return ToolReturned(None)

    async def broken(*given: object) -> None:
        raise LookupError(hook)

    memory = Memory()
    setattr(memory, hook, broken)
    model, script = scripted(answer("I look.", call(n=1), call(n=2)), answer("never"))
    with pytest.raises(LookupError, match=hook):
        converse(model, tools=SomeTools(do), hooks=memory)
    assert ran == HOOKS[hook]
    assert script.count("model") == (0 if hook in {"next_messages", "track"} else 1)


# ---------------------------------------------------------------- whatever the model does


ATTEMPTS = st.lists(
    st.tuples(
        st.sampled_from([*StopReason, "paused", None]),
        st.integers(min_value=0, max_value=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.guarantee("G-HOST-01", "G-HOST-06")
@given(ATTEMPTS, st.integers(min_value=1, max_value=4))
def test_nothing_ever_runs_that_was_not_kept_and_every_kept_call_runs_once(
    drawn: list[tuple[str | None, int, bool]], max_steps: int
) -> None:
    memory, kept_before = Memory(), []

    async def do(one: ToolCall) -> ToolOutcome:
        kept = [c for m in memory.kept if isinstance(m, AssistantMessage) for c in m.calls]
        kept_before.append(one in kept)
        return ToolReturned(None)

    attempts = []
    for reason, calls, broken in drawn:
        said = [
            TextDelta(text="x"),
            result(Text("x"), *(call() for _ in range(calls)), stop=reason),
        ]
        attempts.append([*said, ConnectionError()] if broken else said)
    model, script = scripted(*attempts, *[answer("Done")] * max_steps)
    tools = SomeTools(do)
    try:
        outcome = converse(model, tools=tools, hooks=memory, max_steps=max_steps)
    except (ConnectionError, ResponseNotComplete, InvalidToolState):
        pass
    else:
        assert outcome.steps == script.count("model") <= max_steps
    kept = [c for m in memory.kept if isinstance(m, AssistantMessage) for c in m.calls]
    assert (all(kept_before), tools.ran) == (True, kept)
