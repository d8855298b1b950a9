"""Calls that people decide about: asked by one run, answered later, claimed and run by another."""

from collections.abc import Awaitable, Callable

import pytest

from engine_assistant import AsyncOperations, Caller, Conflict, ConflictReason
from engine_assistant.host import Ask, Ended, PreparedCall, ToolCall, tool
from engine_assistant.model.views import CallView, Thread
from engine_assistant.testing.clock import Clock
from engine_assistant.testing.races import Barrier
from engine_assistant.testing.replay import answer
from tests.host.assistants import Scene, in_loop, looking, refunding, scene

MINUTE = 60.0


def refund(order: int = 7) -> ToolCall:
    return ToolCall("refund", {"order": order}, "call_0")


def within_a_minute(call: PreparedCall, thread: Thread) -> Ask:
    return Ask(expires_in=MINUTE)


async def asks(one: Scene, *calls: ToolCall, **given: object) -> None:
    """Let a run ask about calls, and go."""
    await one.say()
    host = one.host(answer("I ask.", *calls), tools=[refunding([])], **given)
    assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL


async def results(one: Scene) -> list[object]:
    """Return what the model that was asked last was told of calls."""
    (request, *_) = one.replays[-1].requests("model")
    return [r.output for m in request.messages if m.role == "tool" for r in m.results]


# ---------------------------------------------------------------- approved


@pytest.mark.guarantee("G-HOST-45")
@in_loop
async def test_what_one_run_asked_another_runs_once_and_the_model_goes_on(
    database_url: str,
) -> None:
    done: list[object] = []
    async with scene(database_url) as one:
        await asks(one, refund())
        (card,) = await one.cards()
        assert (card.operation, card.input) == ("refund", {"order": 7, "note": ""})
        await one.decide(card, approved=True)
        assert done == []
        host = one.host(answer("It is on its way."), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert done == [{"order": 7, "note": ""}]
        assert await results(one) == [{"refunded": 7}]
        types = await one.types()
        assert types[-6:-3] == ["execution-claimed", "tool-output", "step-start"]
        assert types.count("execution-claimed") == types.count("tool-output") == 1
        await one.healthy()


@pytest.mark.guarantee("G-HOST-46")
@in_loop
async def test_what_is_done_is_never_run_again(database_url: str) -> None:
    done: list[object] = []
    async with scene(database_url) as one:
        await asks(one, refund())
        await one.decide((await one.cards())[0], approved=True)
        # The tool runs, and then the model fails.
        host = one.host([ConnectionError("4711")], tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.ERROR
        for _ in range(5):
            await one.say("And now?")
            host = one.host(answer("It was refunded."), tools=[refunding(done)])
            assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
            assert await results(one) == [{"refunded": 7}]
        assert len(done) == 1
        await one.healthy()


@pytest.mark.guarantee("G-HOST-45")
@in_loop
async def test_somebody_may_decide_while_the_run_still_works(database_url: str) -> None:
    """The turn does not rest then: it goes on with what was decided, under the same lease."""
    done: list[object] = []

    @tool(effect="read", approval="never")
    async def wait() -> None:
        (card,) = await one.cards()
        await one.decide(card, approved=True)

    async with scene(database_url) as one:
        await one.say()
        host = one.host(
            answer(refund(), ToolCall("wait", {})), answer("Done."), tools=[refunding(done), wait]
        )
        report = await host.run_turn(one.thread_id)
        assert (report.ended, report.fence) == (Ended.DONE, 1)
        assert len(done) == 1
        types = await one.types()
        assert types.count("turn-finish") == 1
        assert len(one.replays[-1].requests("model")) == 2
        await one.healthy()


# ---------------------------------------------------------------- denied, expired


@pytest.mark.guarantee("G-HOST-47")
@in_loop
async def test_a_denied_call_does_not_run_and_the_same_again_is_refused_without_a_card(
    database_url: str,
) -> None:
    done: list[object] = []
    async with scene(database_url) as one:
        await asks(one, refund())
        await one.decide((await one.cards())[0], approved=False, reason="Not this one.")
        # The very same in other words, twice, and then something else.
        same = ToolCall("refund", {"note": "", "order": 7})
        host = one.host(answer(same), answer(refund()), answer(refund(8)), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        (told,) = await results(one)
        assert (told["code"], told["reason"]) == ("denied", "Not this one.")
        refused = await one.of("tool-error")
        assert [event.code for event in refused] == ["denied", "denied"]
        (card,) = await one.cards()
        assert card.input["order"] == 8
        assert len(await one.of("approval-request")) == 2
        assert done == []
        await one.healthy()


@pytest.mark.guarantee("G-HOST-47")
@in_loop
async def test_in_another_turn_the_same_may_be_asked_again(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        await asks(one, refund())
        await one.decide((await one.cards())[0], approved=False)
        host = one.host(answer("As you wish."), tools=[refunding([])])
        await host.run_turn(one.thread_id)
        await asks(one, refund())
        assert len(await one.cards()) == 1


@pytest.mark.guarantee("G-HOST-48")
@pytest.mark.parametrize("approved", [False, True])
@in_loop
async def test_a_call_that_ran_out_of_time_does_not_run_and_the_model_is_told(
    database_url: str, approved: bool
) -> None:
    clock, done = Clock(), []
    async with scene(database_url, clock=clock) as one:
        await asks(one, refund(), approvals=within_a_minute)
        if approved:
            await one.decide((await one.cards())[0], approved=True)
        clock.forward(MINUTE)
        host = one.host(answer("Too late."), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (told,) = await results(one)
        assert (told["code"], done) == ("expired", [])
        await one.healthy()


@pytest.mark.guarantee("G-HOST-48")
@in_loop
async def test_time_may_run_out_between_the_lease_and_the_claim(database_url: str) -> None:
    clock, done = Clock(), []

    async def slowly(call: PreparedCall) -> None:
        clock.forward(MINUTE)

    async with scene(database_url, clock=clock) as one:
        await asks(one, refund(), approvals=within_a_minute)
        await one.decide((await one.cards())[0], approved=True)
        host = one.host(answer("Too late."), tools=[refunding(done)], ready=slowly)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert (await results(one))[0]["code"] == "expired"
        assert ([event.state for event in await one.of("call-closed")], done) == (["expired"], [])
        await one.healthy()


@pytest.mark.guarantee("G-HOST-48")
@in_loop
async def test_time_may_run_out_while_the_run_still_works(database_url: str) -> None:
    clock = Clock()

    @tool(effect="read", approval="never")
    async def wait() -> None:
        clock.forward(MINUTE)

    async with scene(database_url, clock=clock) as one:
        await one.say()
        host = one.host(
            answer(refund(), ToolCall("wait", {})),
            answer("Nobody answered."),
            tools=[refunding([]), wait],
            approvals=within_a_minute,
        )
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        _, second = one.replays[-1].requests("model")
        codes = [
            r.output["code"]
            for m in second.messages
            if m.role == "tool"
            for r in m.results
            if r.is_error
        ]
        assert codes == ["expired"]
        await one.healthy()


@pytest.mark.guarantee("G-HOST-49")
@in_loop
async def test_of_three_calls_each_has_its_own_fate_and_exactly_one_result(
    database_url: str,
) -> None:
    """One is approved, one denied, one runs out of time; two turns of the key, in any order."""
    clock, done = Clock(), []
    times = {1: 10 * MINUTE, 2: 10 * MINUTE, 3: MINUTE}

    def each(call: PreparedCall, thread: Thread) -> Ask:
        return Ask(expires_in=times[call.input["order"]])

    async with scene(database_url, clock=clock) as one:
        await asks(one, refund(1), refund(2), refund(3), approvals=each)
        cards = {card.input["order"]: card for card in await one.cards()}
        await one.decide(cards[2], approved=False)
        # The turn is open again, and two still wait: a run that comes now finds nothing to do.
        host = one.host(tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        clock.forward(MINUTE)
        await one.decide(cards[1], approved=True)
        host = one.host(answer("One of three."), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert done == [{"order": 1, "note": ""}]
        told = {}
        (request,) = one.replays[-1].requests("model")
        (proposed,) = [m for m in request.messages if m.role == "assistant"]
        for message in request.messages:
            if message.role == "tool":
                for result in message.results:
                    assert result.call_id not in told
                    told[result.call_id] = result.output
        by_order = [told[call.call_id] for call in proposed.calls]
        assert by_order[0] == {"refunded": 1}
        assert [result["code"] for result in by_order[1:]] == ["denied", "expired"]
        await one.healthy()


class Between:
    """The engine, with something done before the host looks at a call."""

    def __init__(self, one: Scene, do: Callable[[], Awaitable[None]]) -> None:
        self._assistant = one.assistant
        self._do = do
        self.limits = one.assistant.limits

    def acting_as(self, caller: Caller) -> AsyncOperations:
        ops = self._assistant.acting_as(caller)
        get_call = ops.get_call

        async def meddled(**given: str) -> CallView:
            await self._do()
            return await get_call(**given)

        ops.get_call = meddled
        return ops


@pytest.mark.guarantee("G-HOST-47")
@in_loop
async def test_a_denial_that_comes_while_a_run_looks_around_is_told_as_one(
    sqlite_url: str,
) -> None:
    async with scene(sqlite_url) as one:
        await asks(one, refund(1), refund(2))
        first, second = await one.cards()
        await one.decide(first, approved=True)
        left = [second]

        async def deny() -> None:
            if left:
                await one.decide(left.pop(), approved=False)

        host = one.host(answer("I see."), tools=[refunding([])], assistant=Between(one, deny))
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        told, came = await results(one)
        assert (told["code"], came) == ("denied", {"refunded": 1})
        await one.healthy()


# ---------------------------------------------------------------- another deploy


def changed(done: list[object]) -> object:
    """The same tool after a deploy: it still takes the same arguments, and does more."""
    return refunding(done, effect="destructive")


@pytest.mark.guarantee("G-HOST-50")
@in_loop
async def test_a_call_that_was_approved_under_another_contract_is_asked_about_anew(
    database_url: str,
) -> None:
    done: list[object] = []
    async with scene(database_url) as one:
        await asks(one, refund())
        (old,) = await one.cards()
        await one.decide(old, approved=True)
        host = one.host(tools=[changed(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        again = (await one.of("approval-request"))[-1]
        assert (again.reissue, again.why is not None, done) == (True, True, [])
        (new,) = await one.cards()
        assert new.version != old.version
        with pytest.raises(Conflict) as refused:
            await one.decide(old, approved=True)
        assert refused.value.reason is ConflictReason.DIGEST_MISMATCH
        await one.decide(new, approved=True)
        host = one.host(answer("Done."), tools=[changed(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert len(done) == 1
        await one.healthy()


@pytest.mark.guarantee("G-HOST-50")
@in_loop
async def test_a_call_that_waits_is_asked_about_anew_without_waking_its_turn(
    database_url: str,
) -> None:
    async with scene(database_url) as one:
        await asks(one, refund())
        (old,) = await one.cards()
        host = one.host(tools=[changed([])])
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        (new,) = await one.cards()
        assert new.version != old.version
        assert await one.turn_state() == "awaiting"
        assert await one.assistant.list_runnable() == []
        # Once more: nothing has changed, and nobody is asked again.
        await host.run_turn(one.thread_id)
        assert len(await one.of("approval-request")) == 2
        await one.healthy()


@pytest.mark.guarantee("G-HOST-61")
@in_loop
async def test_what_breaks_while_the_turn_waits_leaves_it_waiting_without_a_lease(
    database_url: str,
) -> None:
    def broken(call: PreparedCall, thread: Thread) -> Ask:
        raise KeyError("nobody knows who approves")

    async with scene(database_url) as one:
        await asks(one, refund())
        before = await one.types()
        report = await one.host(tools=[changed([])], approvals=broken).run_turn(one.thread_id)
        assert (report.ended, type(report.error)) == (Ended.ERROR, KeyError)
        assert (await one.turn_state(), await one.types()) == ("awaiting", before)
        # Nobody's lease stands in the way of a run that can ask.
        host = one.host(tools=[changed([])])
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        assert len(await one.of("approval-request")) == 2
        await one.healthy()


@pytest.mark.guarantee("G-HOST-50")
@in_loop
async def test_a_call_that_its_tool_would_not_take_any_more_fails(database_url: str) -> None:
    done: list[object] = []

    @tool(name="refund", effect="write", approval="always")
    async def renamed(number: int) -> None:
        done.append(number)

    @tool(name="refund", effect="write", approval="always")
    async def grown(order: int, note: str = "", currency: str = "EUR") -> None:
        done.append(order)

    for tools, code in (([renamed], "invalid_arguments"), ([grown], "contract_changed")):
        async with scene(database_url) as one:
            await asks(one, refund())
            await one.decide((await one.cards())[0], approved=True)
            host = one.host(answer("I see."), tools=tools)
            assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
            assert [event.code for event in await one.of("tool-error")] == [code]
            assert (await results(one))[0]["code"] == code
    assert done == []


@pytest.mark.guarantee("G-HOST-51")
@in_loop
async def test_an_approved_call_that_cannot_run_here_stays_approved_for_who_can(
    database_url: str,
) -> None:
    done: list[object] = []

    async def locked(call: PreparedCall) -> None:
        raise RuntimeError("the vault is sealed")

    def away(given: object) -> str:
        raise RuntimeError("the policy service is away")

    async with scene(database_url) as one:
        await asks(one, refund())
        await one.decide((await one.cards())[0], approved=True)
        before = await one.types()
        lacking: list[dict[str, object]] = [
            {"tools": [looking([])]},
            {"tools": [refunding(done, approval=away)]},
            {"tools": [refunding(done)], "ready": locked},
        ]
        for here in lacking:
            report = await one.host(**here).run_turn(one.thread_id)
            assert (report.ended, report.error is not None) == (Ended.RELEASED, True)
            assert await one.types() == before
            (call,) = (await one.bot.list_calls(thread_id=one.thread_id)).items
            assert (call.state, done) == ("approved", [])
            assert len(await one.assistant.list_runnable()) == 1
        host = one.host(answer("Done."), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert len(done) == 1
        await one.healthy()


# ---------------------------------------------------------------- meanwhile


@in_loop
async def test_a_person_who_says_something_else_passes_the_question_by(database_url: str) -> None:
    done: list[object] = []
    async with scene(database_url) as one:
        await asks(one, refund())
        await one.say("Never mind", supersede_approvals=True)
        host = one.host(answer("As you wish."), tools=[refunding(done)])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert ((await results(one))[0]["code"], done) == ("superseded", [])


@in_loop
async def test_who_steers_while_people_are_asked_is_heard_after_their_answer(
    database_url: str,
) -> None:
    async with scene(database_url) as one:
        await asks(one, refund())
        await one.say("And be quick", when_busy="steer")
        await one.decide((await one.cards())[0], approved=True)
        host = one.host(answer("Done."), tools=[refunding([])])
        await host.run_turn(one.thread_id)
        (request,) = one.replays[-1].requests("model")
        assert [m.role for m in request.messages] == ["user", "assistant", "tool", "user"]


@in_loop
async def test_stop_is_heard_before_an_approved_call_runs(database_url: str) -> None:
    """Pressed while another run was at work, which then died."""
    clock, done, speaking = Clock(), [], Barrier()
    async with scene(database_url, clock=clock) as one:
        await asks(one, refund())
        await one.decide((await one.cards())[0], approved=True)
        lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="dies")
        assert not (await one.me.interrupt_turn(thread_id=one.thread_id)).ended
        clock.forward(3600)
        host = one.host(tools=[refunding(done)])
        report = await host.run_turn(one.thread_id)
        assert (report.ended, report.fence > lease.fence) == (Ended.INTERRUPTED, True)
        assert (done, await one.turn_state()) == ([], "idle")
        del speaking
        await one.healthy()
