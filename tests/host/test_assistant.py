"""A message, and the turn that answers it: what stands in the record, and when."""

import asyncio
from collections.abc import Sequence

import pytest

from engine_assistant import Conflict, ConflictReason, Limits
from engine_assistant.host import (
    Ask,
    AssistantMessage,
    Batching,
    Data,
    Ended,
    Hooks,
    HostEvent,
    ModelEvent,
    ModelResult,
    Reasoning,
    ReasoningDelta,
    Step,
    StopReason,
    Text,
    TextDelta,
    ThreadRef,
    ToolCall,
    ToolContext,
    ToolMessage,
    UserMessage,
    tool,
)
from engine_assistant.testing.races import Barrier
from engine_assistant.testing.replay import answer
from tests.host.assistants import BOB, Scene, in_loop, looking, refunding, scene, until

NEVER = 3600.0


def look(order: int = 7, provider_call_id: str = "call_0") -> ToolCall:
    return ToolCall("look", {"order": order}, provider_call_id)


async def said(one: Scene) -> str:
    return "".join(event.text for event in await one.of("text-delta"))


@pytest.mark.guarantee("G-HOST-40")
@in_loop
async def test_a_message_is_answered_in_the_record_from_the_lease_to_the_rest(
    database_url: str,
) -> None:
    seen: list[object] = []
    async with scene(database_url) as one:
        await one.say(key="msg-1")
        host = one.host(
            answer("Let me ", "look.", look()), answer("Order 7 is fine."), tools=[looking(seen)]
        )
        report = await host.run_turn(one.thread_id)
        assert (report.ended, report.error, report.unsettled) == (Ended.DONE, None, ())
        assert await one.types() == [
            *["user-message", "turn-start"],
            *["step-start", "text-delta", "tool-input", "step-finish", "tool-output"],
            *["step-start", "text-delta", "step-finish", "turn-finish"],
        ]
        assert await said(one) == "Let me look.Order 7 is fine."
        assert seen == [{"look": 7}]
        (proposed,), (came,) = await one.of("tool-input"), await one.of("tool-output")
        assert (proposed.tool, proposed.input) == ("look", {"order": 7})
        assert (came.call_id, came.output) == (proposed.call_id, {"order": 7})
        first, second = await one.of("step-finish")
        assert (first.stop_reason, second.stop_reason) == ("tool_call", "end_turn")
        receipt = await one.me.send_message(
            thread_id=one.thread_id, text="Please refund order 7", key="msg-1"
        )
        assert receipt.answer is not None
        assert (receipt.answer.reason, receipt.answer.text) == ("done", await said(one))
        await one.healthy()


@in_loop
async def test_what_there_is_to_run_is_found_run_and_then_there_is_nothing(
    database_url: str,
) -> None:
    async with scene(database_url) as one:
        await one.say()
        host = one.host(answer("Hello"))
        (found,) = await one.assistant.list_runnable()
        await host.run_turn(found.thread_id)
        assert await one.assistant.list_runnable() == []
        with pytest.raises(Conflict) as refused:
            await host.run_turn(one.thread_id)
        assert refused.value.reason is ConflictReason.NO_TURN_OPEN


@in_loop
async def test_the_next_turn_is_told_all_that_was_said_before_it(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say("Look order 7 up")
        await one.host(answer(look()), answer("It is fine."), tools=[looking([])]).run_turn(
            one.thread_id
        )
        await one.say("Thanks")
        host = one.host(answer("Not at all."))
        await host.run_turn(one.thread_id)
        (request,) = one.replays[-1].requests("model")
        assert [message.role for message in request.messages] == [
            *["user", "assistant", "tool", "assistant", "user"]
        ]
        (result,) = request.messages[2].results
        assert result.output == {"order": 7}
        assert request.messages[1].calls[0].provider_call_id == "call_0"
        assert request.messages[3].text == "It is fine."


@pytest.mark.guarantee("G-HOST-41")
@in_loop
async def test_ids_of_the_model_are_labels_and_may_come_again(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        script = [answer(look(1), look(2)), answer(look(3)), answer("Seen.")]
        await one.host(*script, tools=[looking([])]).run_turn(one.thread_id)
        calls = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert len({call.call_id for call in calls}) == 3
        assert {call.provider_call_id for call in calls} == {"call_0"}
        assert [call.input for call in calls] == [{"order": n} for n in (1, 2, 3)]
        assert [call.result for call in calls] == [{"output": {"order": n}} for n in (1, 2, 3)]
        steps = [event.step for event in await one.of("step-start")]
        assert [call.step for call in calls] == [steps[0], steps[0], steps[1]]
        assert len(set(steps)) == 3


# ---------------------------------------------------------------- batches


@pytest.mark.guarantee("G-HOST-42")
@in_loop
async def test_deltas_are_joined_and_never_stand_behind_what_came_after_them(
    database_url: str,
) -> None:
    words = [f"word {n} " for n in range(100)]
    async with scene(database_url) as one:
        await one.say()
        patient = Batching(seconds=NEVER, bytes=1_000_000)
        host = one.host(
            answer(*words, look()), answer("Done."), tools=[looking([])], batching=patient
        )
        await host.run_turn(one.thread_id)
        first, second = await one.of("text-delta")
        assert (first.text, second.text) == ("".join(words), "Done.")
        types = await one.types()
        assert types.index("text-delta") < types.index("tool-input")


@pytest.mark.guarantee("G-HOST-42")
@in_loop
async def test_deltas_are_written_when_they_are_many(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        small = Batching(seconds=NEVER, bytes=10)
        await one.host(answer(*["1234"] * 9), batching=small).run_turn(one.thread_id)
        assert [event.text for event in await one.of("text-delta")] == ["1234" * 3] * 3


@pytest.mark.guarantee("G-HOST-42")
@in_loop
async def test_deltas_are_written_in_time_though_the_model_falls_silent(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        silent = Barrier()
        *told, result = answer("Hello")
        running = asyncio.create_task(one.host([*told, silent, result]).run_turn(one.thread_id))

        async def heard() -> bool:
            return bool(await one.of("text-delta"))

        await until(heard)
        assert "step-finish" not in await one.types()
        silent.release()
        await running


@pytest.mark.guarantee("G-HOST-42")
@in_loop
async def test_text_of_any_length_and_kind_is_kept(database_url: str) -> None:
    """A delta may be longer than an event, hold NUL, or one half of a character."""
    long = "\0\U0001f600" * 40_000
    async with scene(database_url, limits=Limits(event_bytes=50_000)) as one:
        await one.say()
        *_, result = answer("a", long, "\ud83d", "z")
        pieces = [TextDelta(text="a"), TextDelta(text=long)]
        pieces += [TextDelta.model_construct(text="\ud83d"), TextDelta(text="z")]
        report = await one.host([*pieces, result]).run_turn(one.thread_id)
        assert report.ended is Ended.DONE
        assert await said(one) == f"a{long}?z"


@pytest.mark.parametrize("wrong", [{"seconds": -1}, {"bytes": 0}, {"seconds": float("nan")}])
def test_batches_that_can_never_be_written_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="batching"):
        Batching(**wrong)


# ---------------------------------------------------------------- what is shown


@pytest.mark.guarantee("G-HOST-43")
@pytest.mark.parametrize("shown", [False, True])
@in_loop
async def test_reasoning_stays_out_of_the_log_unless_the_host_wants_it(
    sqlite_url: str, shown: bool
) -> None:
    thought = AssistantMessage((Reasoning("Hm, well."), Text("Yes.")))
    script = [
        *[ReasoningDelta(text="Hm, "), ReasoningDelta(text="well."), TextDelta(text="Yes.")],
        ModelResult(message=thought, stop_reason=StopReason.END_TURN),
    ]
    async with scene(sqlite_url) as one:
        await one.say()
        await one.host(script, show_reasoning=shown).run_turn(one.thread_id)
        reasons = await one.of("reasoning-delta")
        assert [event.text for event in reasons] == (["Hm, well."] if shown else [])
        assert await said(one) == "Yes."


@pytest.mark.guarantee("G-HOST-70")
@in_loop
async def test_tools_hooks_and_instructions_are_told_for_whom(database_url: str) -> None:
    told: list[ThreadRef | None] = []

    @tool(effect="read", approval="never")
    def orders(owner: str, context: ToolContext) -> str:
        told.append(context.thread)
        return owner

    async def system(step: Step) -> str:
        told.append(step.thread)
        return "Be brief."

    class Host(Hooks):
        async def on_tool_results(self, message: ToolMessage, step: Step) -> None:
            del message
            told.append(step.thread)

    async with scene(database_url) as one:
        await one.say()
        await one.host(answer("Hello.")).run_turn(one.thread_id)
        await one.say("Again")
        script = [answer(ToolCall("orders", {"owner": "usr_bob"})), answer("Done.")]
        host = one.host(*script, tools=[orders], system=system, hooks=Host())
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        whose = ThreadRef(tenant="acme", id=one.thread_id, subject_id="usr_alice", turn=2)
        assert told == [whose] * 4


@in_loop
async def test_what_tools_and_hooks_tell_stands_in_the_log_in_its_place(sqlite_url: str) -> None:
    @tool(effect="read", approval="never")
    async def count(context: ToolContext) -> int:
        for n in (1, 2):
            await context.report({"done": n})
        return 2

    class Host(Hooks):
        def __init__(self) -> None:
            self.told: list[object] = []

        async def on_event(self, event: ModelEvent | HostEvent, step: Step) -> None:
            self.told.append(event)

        async def before_response(self, result: ModelResult, step: Step) -> None:
            if step.number == 2:
                await step.emit(Data(kind="sources", payload=["a"], ignorable=True))

        async def on_assistant_message(self, message: AssistantMessage, step: Step) -> None:
            # The record has it by now.
            assert len(await one.of("tool-input")) == 1
            self.told.append(message)

        async def on_tool_results(self, message: ToolMessage, step: Step) -> None:
            assert len(await one.of("tool-output")) == 1
            self.told.append(message)

        async def next_messages(self, step: Step) -> Sequence[UserMessage]:
            raise AssertionError("what the person says comes from the record alone")

    async with scene(sqlite_url) as one:
        await one.say()
        hooks = Host()
        script = [answer(ToolCall("count", {})), answer("Two.")]
        await one.host(*script, tools=[count], hooks=hooks).run_turn(one.thread_id)
        assert (await one.types())[4:] == [
            *["step-finish", "tool-progress", "tool-progress", "tool-output"],
            *["step-start", "text-delta", "data", "step-finish", "turn-finish"],
        ]
        assert [type(one).__name__ for one in hooks.told] == [
            *["ToolCallStarted", "AssistantMessage", "ToolProgress", "ToolProgress"],
            *["ToolMessage", "TextDelta", "Data", "AssistantMessage"],
        ]


@in_loop
async def test_an_answer_that_the_host_corrects_is_not_told_again_but_was_said(
    sqlite_url: str,
) -> None:
    class Strict(Hooks):
        async def before_response(
            self, result: ModelResult, step: Step
        ) -> list[UserMessage] | None:
            return [UserMessage("Say it politely.")] if step.number == 1 else None

    async with scene(sqlite_url) as one:
        await one.say()
        await one.host(answer("No."), answer("No, sorry."), hooks=Strict()).run_turn(one.thread_id)
        assert [event.text for event in await one.of("text-delta")] == ["No.", "No, sorry."]
        assert len(await one.of("step-finish")) == 2


# ---------------------------------------------------------------- what is said meanwhile


@pytest.mark.guarantee("G-HOST-44")
@in_loop
async def test_what_the_person_says_meanwhile_is_taken_in_before_the_next_request(
    database_url: str,
) -> None:
    @tool(effect="read", approval="never")
    async def wait() -> None:
        await one.say("In euros, please", when_busy="steer")

    async with scene(database_url) as one:
        await one.say()
        await one.host(answer(ToolCall("wait", {})), answer("7 euros."), tools=[wait]).run_turn(
            one.thread_id
        )
        _, second = one.replays[-1].requests("model")
        assert [message.role for message in second.messages] == [
            *["user", "assistant", "tool", "user"]
        ]
        assert second.messages[-1] == UserMessage("In euros, please")
        types = await one.types()
        assert types.index("tool-output") < types.index("user-message", 1)
        assert (await one.turn_state(), types.count("turn-start")) == ("idle", 1)
        await one.healthy()


@in_loop
async def test_what_waits_in_line_opens_the_next_turn(database_url: str) -> None:
    @tool(effect="read", approval="never")
    async def wait() -> None:
        await one.say("And order 8?", when_busy="queue")

    async with scene(database_url) as one:
        await one.say()
        host = one.host(
            answer(ToolCall("wait", {})), answer("Fine."), answer("Also fine."), tools=[wait]
        )
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert await one.turn_state() == "open"
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        *_, last = one.replays[-1].requests("model")
        assert last.messages[-1] == UserMessage("And order 8?")
        assert await one.turn_state() == "idle"


@in_loop
async def test_files_that_came_with_a_message_are_named(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        file = await one.bot.register_file(
            thread_id=one.thread_id,
            filename="invoice.pdf",
            content_type="application/pdf",
            size=1234,
            sha256="0" * 64,
        )
        await one.say("Is this right?", attachment_ids=[file.id])
        await one.host(answer("It is.")).run_turn(one.thread_id)
        (request,) = one.replays[-1].requests("model")
        (message,) = request.messages
        assert message.text.splitlines() == [
            "Is this right?",
            f"[file {file.id}: invoice.pdf, application/pdf, 1234 bytes]",
        ]


@in_loop
async def test_a_summary_stands_for_what_it_summarises(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        for text in ("One", "Two"):
            await one.say(text)
            await one.host(answer("Yes.")).run_turn(one.thread_id)
        history = await one.bot.history(thread_id=one.thread_id)
        await one.bot.compact(
            thread_id=one.thread_id,
            from_seq=history.messages[0].from_seq,
            to_seq=history.messages[1].to_seq,
            summary="They counted.",
            expected_head=history.head_seq,
        )
        await one.say("Three")
        await one.host(answer("Yes.")).run_turn(one.thread_id)
        (request,) = one.replays[-1].requests("model")
        summary, *rest = request.messages
        assert summary.text.endswith("They counted.")
        assert [message.text for message in rest] == ["Two", "Yes.", "Three"]


# ---------------------------------------------------------------- whom to ask


@in_loop
async def test_a_host_says_whom_to_ask_and_for_how_long(sqlite_url: str) -> None:
    asked: list[object] = []

    async def whom(call: object, thread: object) -> Ask:
        asked.append((call.input, thread.subject_id))
        return Ask(approvers=["usr_bob", "usr_cat"], required=2, expires_in=60.0)

    async with scene(sqlite_url) as one:
        await one.say()
        await one.host(
            answer(ToolCall("refund", {"order": 7})), tools=[refunding([])], approvals=whom
        ).run_turn(one.thread_id)
        assert asked == [({"order": 7, "note": ""}, "usr_alice")]
        assert (await one.me.list_approvals()).items == ()
        bob = one.assistant.acting_as(BOB)
        (card,) = (await bob.list_approvals()).items
        assert (card.required, card.approver) == (2, "usr_bob")
