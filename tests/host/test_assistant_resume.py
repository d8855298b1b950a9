"""Going on where a process died: what it had done is not done again, what it knew is not lost."""

import asyncio
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine_assistant import Conflict, NotFound
from engine_assistant.host import (
    AssistantHost,
    AssistantMessage,
    Ended,
    ModelRequest,
    ModelResult,
    ProviderState,
    StopReason,
    Text,
    ToolCall,
    ToolRegistry,
    TurnReport,
    tool,
)
from engine_assistant.testing.races import Barrier
from engine_assistant.testing.replay import answer
from tests.host import dying
from tests.host.assistants import ROBOT, Scene, in_loop, looking, refunding, scene, until

UNKNOWN = "unknown"


class World:
    """A thread, and what was done to the world from it."""

    def __init__(self, one: Scene, folder: Path) -> None:
        self.one = one
        self.effects = folder / "effects"

    @property
    def done(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    async def dies(self, point: str) -> None:
        """Let a process run the turn, and be killed."""
        url = self.one.assistant.engine.url.render_as_string(hide_password=False)
        command = ["-m", "tests.host.dying", url.replace("+aiosqlite", "")]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, self.one.thread_id, str(self.effects), point
        )
        assert await process.wait() == -signal.SIGKILL

    async def goes_on(self, **given: object) -> tuple[TurnReport, list[ModelRequest]]:
        """Run the turn here, as soon as the lease of the dead has run out."""
        asked: list[ModelRequest] = []
        talker = dying.Talker("")

        class Model:
            def stream(self, request: ModelRequest) -> object:
                asked.append(request)
                return talker.stream(request)

        host = AssistantHost(
            assistant=self.one.assistant,
            caller=ROBOT,
            model=Model(),
            tools=ToolRegistry(dying.tools(str(self.effects), **given)),
        )
        reports: list[TurnReport] = []

        async def ran() -> bool:
            try:
                reports.append(await host.run_turn(self.one.thread_id))
            except Conflict:
                return False
            return True

        await until(ran)
        return reports[0], asked

    async def approve(self) -> None:
        (card,) = await self.one.cards()
        await self.one.decide(card, approved=True)


@pytest.mark.guarantee("G-HOST-45", "G-HOST-57")
@in_loop
async def test_a_process_asks_and_dies_and_another_runs_what_was_approved(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as one:
        world = World(one, tmp_path)
        await one.say()
        await world.dies("")
        assert (world.done, await one.turn_state()) == (["looked"], "awaiting")
        await world.approve()
        report, asked = await world.goes_on()
        assert (report.ended, world.done) == (Ended.DONE, ["looked", "refunded"])
        # What only the model's provider can read comes back to it as it was.
        (request,) = asked
        answers = [m for m in request.messages if m.role == "assistant"]
        assert [(m.state, m.content[0]) for m in answers] == [(dying.STATE, dying.THOUGHT)] * 2
        log = await one.me.read_events_json(thread_id=one.thread_id, limit=1000)
        assert b"4711" not in log
        assert dying.THOUGHT.text.encode() not in log
        await one.healthy()


@pytest.mark.guarantee("G-HOST-58")
@in_loop
async def test_a_call_that_may_have_happened_is_not_run_again(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as one:
        world = World(one, tmp_path)
        await one.say()
        await world.dies("")
        await world.approve()
        await world.dies("refunded")
        report, asked = await world.goes_on()
        assert (report.ended, world.done) == (Ended.DONE, ["looked", "refunded"])
        told = asked[0].messages[-1].results[0]
        assert (told.is_error, told.output["code"]) == (True, UNKNOWN)
        (call,) = (await one.bot.list_calls(thread_id=one.thread_id, state=UNKNOWN)).items
        assert call.tool == "refund"
        await one.healthy()


@pytest.mark.guarantee("G-HOST-58")
@in_loop
async def test_a_call_that_may_run_twice_is_run_again(database_url: str, tmp_path: Path) -> None:
    async with scene(database_url) as one:
        world = World(one, tmp_path)
        await one.say()
        # Looking is repeatable: nobody had to approve it.
        await world.dies("looked")
        report, asked = await world.goes_on()
        assert (report.ended, world.done) == (Ended.AWAITING_APPROVAL, ["looked", "looked"])
        assert asked[0].messages[-1].results[0].output == "order 7 is paid"
        assert len(await one.of("call-retried")) == 1
        await one.healthy()


@pytest.mark.guarantee("G-HOST-58")
@in_loop
async def test_an_approved_call_that_may_run_twice_is_claimed_again(database_url: str) -> None:
    done: list[object] = []
    dead = Barrier()

    @tool(effect="write", approval="always", repeatable=True)
    async def refund(order: int) -> str:
        done.append(order)
        if len(done) == 1:
            await dead
        return "refunded"

    async with scene(database_url) as one:
        await one.say()
        await one.host(answer(ToolCall("refund", {"order": 7})), tools=[refund]).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        running = asyncio.create_task(one.host(tools=[refund]).run_turn(one.thread_id))
        await asyncio.to_thread(dead.reached.wait)
        running.cancel()
        await asyncio.wait({running})
        dead.release()
        host = one.host(answer("Done."), tools=[refund])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert done == [7, 7]
        assert len(await one.of("execution-claimed")) == 2
        (call,) = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert (call.state, call.result) == ("done", {"output": "refunded"})
        await one.healthy()


@pytest.mark.guarantee("G-HOST-58")
@in_loop
async def test_a_call_whose_tool_may_not_run_twice_any_more_is_not_run_again(
    database_url: str,
) -> None:
    done: list[object] = []
    dead = Barrier()

    @tool(name="look", effect="read", approval="never")
    async def wait(order: int) -> None:
        await dead

    async with scene(database_url) as one:
        await one.say()
        host = one.host(answer(ToolCall("look", {"order": 7})), tools=[wait])
        running = asyncio.create_task(host.run_turn(one.thread_id))
        await asyncio.to_thread(dead.reached.wait)
        running.cancel()
        await asyncio.wait({running})
        dead.release()
        host = one.host(answer("I do not know."), tools=[looking(done, repeatable=False)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        assert [r.output["code"] for r in request.messages[-1].results] == [UNKNOWN]
        assert done == []
        await one.healthy()


@pytest.mark.guarantee("G-HOST-68")
@pytest.mark.parametrize("gated", ["when it was proposed", "since then"])
@in_loop
async def test_a_call_about_which_nobody_was_asked_is_not_run_again_without_asking(
    database_url: str, gated: str
) -> None:
    """The run dies in an earlier call of the answer, or in this one before it needed approval."""
    done: list[object] = []
    dead = Barrier()

    @tool(effect="read", approval="never", repeatable=False)
    async def wait() -> None:
        await dead

    @tool(name="refund", effect="write", approval="never", repeatable=True)
    async def ungated(order: int, note: str = "") -> None:
        await dead

    before, after = refunding(done, repeatable=True), refunding(done, repeatable=True)
    if gated == "since then":
        before = ungated
    async with scene(database_url) as one:
        await one.say()
        calls = [ToolCall("refund", {"order": 7})]
        if gated == "when it was proposed":
            calls.insert(0, ToolCall("wait", {}))
        running = asyncio.create_task(
            one.host(answer(*calls), tools=[wait, before]).run_turn(one.thread_id)
        )
        await asyncio.to_thread(dead.reached.wait)
        running.cancel()
        await asyncio.wait({running})
        dead.release()
        host = one.host(tools=[wait, after])
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        assert done == []
        (card,) = await one.cards()
        assert card.input == {"order": 7, "note": ""}
        await one.decide(card, approved=True)
        host = one.host(answer("Done."), tools=[wait, after])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert done == [{"order": 7, "note": ""}]
        await one.healthy()


@pytest.mark.guarantee("G-HOST-58")
@pytest.mark.parametrize("owner", [True, False], ids=["the owner says it", "a late result"])
@in_loop
async def test_what_became_of_a_call_is_told_in_a_note_once_a_step_was_begun_without_it(
    database_url: str, owner: bool
) -> None:
    """One run dies in its tools, the next before its model speaks; then one call is settled."""
    dead, silent = Barrier(), Barrier()

    @tool(effect="write", approval="never")
    async def charge(order: int) -> None:
        await dead

    async def dies(host: AssistantHost, where: Barrier, steps: int) -> None:
        async def begun() -> bool:
            return len(await one.of("step-start")) == steps

        running = asyncio.create_task(host.run_turn(one.thread_id))
        await asyncio.to_thread(where.reached.wait)
        await until(begun)
        running.cancel()
        await asyncio.wait({running})
        where.release()

    async with scene(database_url) as one:
        await one.say()
        proposed = [ToolCall("charge", {"order": order}) for order in (7, 8)]
        await dies(one.host(answer(*proposed), tools=[charge]), dead, 1)
        await dies(one.host([silent], tools=[charge]), silent, 2)
        calls = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert [call.state for call in calls] == [UNKNOWN, UNKNOWN]
        (settled,) = [call for call in calls if call.input == {"order": 7}]
        what = {"thread_id": one.thread_id, "call_id": settled.call_id, "output": "charged"}
        if owner:
            await one.me.resolve_unknown(**what, happened=True)
        else:
            await one.bot.settle_execution(**what, claimed_fence=1)
        host = one.host(answer("Only 7 is sure."), tools=[charge])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        results = [r for m in request.messages if m.role == "tool" for r in m.results]
        assert [result.output["code"] for result in results] == [UNKNOWN, UNKNOWN]
        *_, last = request.messages
        assert (last.role, settled.call_id in last.text, "charged" in last.text) == (
            "user",
            True,
            True,
        )
        await one.healthy()


@pytest.mark.guarantee("G-HOST-46")
@in_loop
async def test_a_result_that_was_kept_is_used_again_and_only_the_model_is_asked(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as one:
        world = World(one, tmp_path)
        await one.say()
        await world.dies("request 2")
        report, asked = await world.goes_on()
        assert (report.ended, world.done) == (Ended.AWAITING_APPROVAL, ["looked"])
        assert asked[0].messages[-1].results[0].output == "order 7 is paid"
        assert asked[0].messages[1].state == dying.STATE
        await one.healthy()


@pytest.mark.guarantee("G-HOST-46")
@in_loop
async def test_an_approved_call_that_ran_is_not_run_again_when_its_run_ends_before_the_model(
    database_url: str,
) -> None:
    done: list[object] = []
    silent = Barrier()
    async with scene(database_url) as one:
        await one.say()
        tools = [refunding(done)]
        await one.host(answer(ToolCall("refund", {"order": 7})), tools=tools).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        running = asyncio.create_task(one.host([silent], tools=tools).run_turn(one.thread_id))
        await asyncio.to_thread(silent.reached.wait)
        running.cancel()
        await asyncio.wait({running})
        silent.release()
        assert (await one.turn_state(), len(done)) == ("open", 1)
        host = one.host(answer("Done."), tools=tools)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        assert [r.output for r in request.messages[-1].results] == [{"refunded": 7}]
        assert len(done) == len(await one.of("execution-claimed")) == 1
        await one.healthy()


@pytest.mark.guarantee("G-HOST-59")
@in_loop
async def test_an_answer_that_broke_off_is_asked_for_again_and_stays_in_the_log(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as one:
        world = World(one, tmp_path)
        await one.say()
        await world.dies("speaking 1")
        assert [event.text for event in await one.of("text-delta")] == ["Let me "]
        report, asked = await world.goes_on()
        assert report.ended is Ended.AWAITING_APPROVAL
        assert [message.role for message in asked[0].messages] == ["user"]
        said = "".join(event.text for event in await one.of("text-delta"))
        assert said == "Let me Let me see.Let me see."
        await one.healthy()


# ---------------------------------------------------------------- the private part


def stateful(*calls: ToolCall, state: ProviderState = dying.STATE) -> list[object]:
    message = AssistantMessage((*calls,), state)
    return [ModelResult(message=message, stop_reason=StopReason.TOOL_CALL)]


@pytest.mark.guarantee("G-HOST-57")
@in_loop
async def test_the_private_part_goes_with_its_turn(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        call = ToolCall("look", {"order": 7})
        host = one.host(stateful(call), answer("Done."), tools=[looking([])])
        await host.run_turn(one.thread_id)
        _, second = one.replays[-1].requests("model")
        assert second.messages[1].state == dying.STATE
        await one.say("And now?")
        lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="looks")
        held = {"thread_id": one.thread_id, "run_id": "looks", "fence": lease.fence}
        assert (await one.bot.get_context(**held)).state is None
        await one.bot.release_run(**held)
        host = one.host(answer("Nothing."))
        await host.run_turn(one.thread_id)
        (request,) = one.replays[-1].requests("model")
        assert [m.state for m in request.messages if m.role == "assistant"] == [None, None]


@pytest.mark.guarantee("G-HOST-57")
@in_loop
async def test_a_private_part_that_is_too_long_is_left_out_and_the_turn_goes_on(
    sqlite_url: str,
) -> None:
    big = replace(dying.STATE, data="x" * 700_000)
    async with scene(sqlite_url) as one:
        await one.say()
        first, second = ToolCall("look", {"order": 1}), ToolCall("refund", {"order": 2})
        tools = [looking([]), refunding([])]
        await one.host(
            stateful(first, state=big), stateful(second, state=big), tools=tools
        ).run_turn(one.thread_id)
        await one.decide((await one.cards())[0], approved=True)
        host = one.host(answer("Done."), tools=tools)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        states = [m.state for m in request.messages if m.role == "assistant"]
        assert states == [None, big]


@pytest.mark.guarantee("G-HOST-57")
@pytest.mark.parametrize("kept", ["", "[]", '{"format": "other/1"}', "no JSON", '{"format": 1}'])
@in_loop
async def test_a_private_part_that_nobody_can_read_is_as_if_it_was_not_there(
    sqlite_url: str, kept: str
) -> None:
    async with scene(sqlite_url) as one:
        await one.say()
        await one.host(stateful(ToolCall("refund", {"order": 1})), tools=[refunding([])]).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="other")
        held = {"thread_id": one.thread_id, "run_id": "other", "fence": lease.fence}
        if kept:
            await one.bot.put_context(**held, state=kept)
        await one.bot.release_run(**held)
        host = one.host(answer("Done."), tools=[refunding([])])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        assert request.messages[1].state == (None if kept else dying.STATE)
        assert request.messages[1].calls[0].tool == "refund"


@pytest.mark.guarantee("G-HOST-45", "G-HOST-57")
@in_loop
async def test_what_runs_is_what_the_record_says_whatever_the_private_part_does(
    sqlite_url: str,
) -> None:
    done: list[object] = []
    async with scene(sqlite_url) as one:
        await one.say()
        tools = [refunding(done)]
        await one.host(stateful(ToolCall("refund", {"order": 1})), tools=tools).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="other")
        held = {"thread_id": one.thread_id, "run_id": "other", "fence": lease.fence}
        kept = (await one.bot.get_context(**held)).state
        assert kept is not None
        assert kept.count('"order":1') == 1
        await one.bot.put_context(**held, state=kept.replace('"order":1', '"order":2'))
        await one.bot.release_run(**held)
        host = one.host(answer("Done."), tools=tools)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert done == [{"order": 1, "note": ""}]
        (request,) = one.replays[-1].requests("model")
        assert request.messages[1].calls[0].input == done[0]
        assert request.messages[1].state == dying.STATE


# ---------------------------------------------------------------- how long a turn may go on


@pytest.mark.guarantee("G-HOST-60")
@in_loop
async def test_a_turn_may_take_so_many_steps_whoever_runs_it(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        await one.say()
        given = {"tools": [refunding([])], "max_steps": 3}
        for order in (1, 2):
            host = one.host(answer(ToolCall("refund", {"order": order})), **given)
            assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
            await one.decide((await one.cards())[0], approved=True)
        # The third is the last: it forbids tools, and the model calls all the same.
        host = one.host(answer(ToolCall("refund", {"order": 3})), **given)
        assert (await host.run_turn(one.thread_id)).ended is Ended.LIMIT
        (request,) = one.replays[-1].requests("model")
        assert request.text_only
        assert [event.reason for event in await one.of("turn-finish")][-1] == "limit"


@in_loop
async def test_a_thread_that_is_not_there_or_not_open_has_no_turn(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        host = one.host()
        with pytest.raises(NotFound):
            await host.run_turn("nobody's")
        with pytest.raises(Conflict):
            await host.run_turn(one.thread_id)
        await one.me.close_thread(thread_id=one.thread_id)
        with pytest.raises(Conflict):
            await host.run_turn(one.thread_id)


@in_loop
async def test_a_late_result_of_an_older_call_does_not_hide_a_call_that_waits(
    sqlite_url: str,
) -> None:
    done: list[object] = []
    async with scene(sqlite_url) as one:
        await one.say()
        lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="slow")
        held = {"thread_id": one.thread_id, "run_id": "slow", "fence": lease.fence}
        call = {"type": "tool-input", "call_id": "old", "tool": "ship", "input": {}, "step": "s"}
        await one.bot.append_events(**held, events=[call])
        await one.bot.release_run(**held)
        script = answer(Text("I ask.").text, ToolCall("refund", {"order": 7}))
        await one.host(script, tools=[refunding(done)]).run_turn(one.thread_id)
        await one.bot.settle_execution(
            thread_id=one.thread_id, call_id="old", claimed_fence=lease.fence, output="shipped"
        )
        await one.decide((await one.cards())[0], approved=True)
        host = one.host(answer("Both."), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        assert [m.role for m in request.messages][-2:] == ["tool", "user"]
        assert "shipped" in request.messages[-1].text
        assert len(done) == 1
