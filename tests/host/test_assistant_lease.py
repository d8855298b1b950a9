"""The lease while a turn runs: kept without a word of the model, and the run's end when lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa

from engine_assistant import (
    AsyncAssistant,
    AsyncOperations,
    Conflict,
    ConflictReason,
    Unavailable,
    make_async_engine,
)
from engine_assistant.host import (
    Ask,
    Batching,
    Ended,
    Hooks,
    PreparedCall,
    ToolCall,
    ToolCallStarted,
    ToolContext,
    TurnReport,
    tool,
)
from engine_assistant.host.turns.holding import LeaseLost, take
from engine_assistant.model.events import Known
from engine_assistant.model.views import Thread
from engine_assistant.testing.clock import Clock
from engine_assistant.testing.races import Barrier
from engine_assistant.testing.replay import answer
from tests.host.assistants import (
    ALICE,
    Meddled,
    Scene,
    in_loop,
    looking,
    refunding,
    scene,
    until,
)
from tests.host.test_registry import Stubborn
from tests.rig.wires import Wire, needs_safe_cancel

# Short enough to see beats and the end of trust, long enough for a machine that is busy elsewhere.
SHORT = 3.0
LONG = 600.0


async def lease_until(one: Scene) -> object:
    (row,) = await one.assistant.survey(thread_id=one.thread_id)
    return row.lease_until


@asynccontextmanager
async def silent_model(one: Scene, **given: object) -> AsyncIterator[asyncio.Task[TurnReport]]:
    """Run a turn whose model has said one word, and then says nothing."""
    await one.say()
    silent = Barrier()
    host = one.host([*answer("Hm")[:1], silent, *answer("Hm")[1:]], **given)
    running = asyncio.create_task(host.run_turn(one.thread_id))
    await asyncio.to_thread(silent.reached.wait)
    try:
        yield running
    finally:
        silent.release()
        await running


async def take_over(one: Scene, clock: Clock) -> int:
    """Let another run take the turn when the lease has run out, between two beats."""
    while True:
        clock.forward(2 * LONG)
        try:
            lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="other")
        except Conflict:
            continue
        return lease.fence


@pytest.mark.guarantee("G-HOST-52")
@in_loop
async def test_the_lease_is_kept_while_the_model_says_nothing(database_url: str) -> None:
    async with scene(database_url) as one, silent_model(one, stale_after=SHORT) as running:
        seen = {await lease_until(one)}

        async def renewed() -> bool:
            seen.add(await lease_until(one))
            return len(seen) > 3

        await until(renewed)
        with pytest.raises(Conflict) as refused:
            await one.bot.acquire_run(thread_id=one.thread_id, run_id="other")
        assert refused.value.reason is ConflictReason.RUN_IN_PROGRESS
        assert not running.done()


@pytest.mark.guarantee("G-HOST-52")
@in_loop
async def test_the_lease_is_kept_while_a_tool_works(sqlite_url: str) -> None:
    seen: set[object] = set()

    async def renewed() -> bool:
        seen.add(await lease_until(one))
        return len(seen) > 3

    @tool(effect="read", approval="never")
    async def wait() -> None:
        await until(renewed)

    async with scene(sqlite_url) as one:
        await one.say()
        host = one.host(
            answer(ToolCall("wait", {})), answer("Done."), tools=[wait], stale_after=SHORT
        )
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_a_run_that_was_replaced_stops_and_writes_nothing_more(database_url: str) -> None:
    clock = Clock()
    # One beats, the other hears of it when it writes.
    for given in ({"stale_after": SHORT}, {"stale_after": LONG, "batching": Batching(seconds=0)}):
        async with scene(database_url, clock=clock) as one, silent_model(one, **given) as running:
            await take_over(one, clock)
            before = await one.types()
            if given["stale_after"] == SHORT:
                report = await running
                assert (report.ended, report.error.reason) == (Ended.LOST, "run_fenced")
        report = await running
        assert (report.ended, report.unsettled) == (Ended.LOST, ())
        async with scene(database_url) as other:
            page = await other.me.read_events(thread_id=one.thread_id)
            assert [event.type for event in page.events] == before


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_a_tool_that_runs_when_the_lease_is_lost_is_cancelled(database_url: str) -> None:
    clock, seen = Clock(), []

    @tool(effect="write", approval="never")
    async def wait() -> None:
        await take_over(one, clock)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async with scene(database_url, clock=clock) as one:
        await one.say()
        host = one.host(answer(ToolCall("wait", {})), tools=[wait], stale_after=SHORT)
        report = await host.run_turn(one.thread_id)
        assert (report.ended, report.unsettled, seen) == (Ended.LOST, (), ["cancelled"])
        assert (await one.types())[-1] == "call-closed"


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_a_run_that_lost_its_lease_stops_though_its_tool_does_not(database_url: str) -> None:
    clock, stubborn = Clock(), Stubborn()

    @tool(effect="write", approval="never", timeout=None)
    async def wait(context: ToolContext) -> None:
        await take_over(one, clock)
        await stubborn()
        with pytest.raises(LeaseLost):
            await context.report("still at it")
        stubborn.told += 1

    async with scene(database_url, clock=clock) as one:
        await one.say()
        host = one.host(answer(ToolCall("wait", {})), tools=[wait], stale_after=SHORT)
        report = await host.run_turn(one.thread_id)
        assert (report.ended, report.unsettled, stubborn.told) == (Ended.LOST, (), 1)
        before = await one.types()
        stubborn.let.set()

        async def over() -> bool:
            return stubborn.told == 2

        await until(over)
        assert await one.types() == before


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_a_result_that_came_too_late_is_in_the_report_and_can_still_be_settled(
    database_url: str,
) -> None:
    clock, done = Clock(), []

    @tool(effect="write", approval="always")
    async def refund(order: int) -> dict[str, int]:
        done.append(order)
        await take_over(one, clock)
        return {"refunded": order}

    async with scene(database_url, clock=clock) as one:
        await one.say()
        await one.host(answer(ToolCall("refund", {"order": 7})), tools=[refund]).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        report = await one.host(tools=[refund], stale_after=LONG).run_turn(one.thread_id)
        assert report.ended is Ended.LOST
        assert "tool-output" not in await one.types()
        (left,) = report.unsettled
        await one.bot.settle_execution(
            thread_id=one.thread_id,
            call_id=left.call_id,
            claimed_fence=left.claimed_fence,
            output=left.outcome.output,
        )
        (call,) = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert (call.state, call.result, done) == ("done", {"output": {"refunded": 7}}, [7])
        await one.healthy()


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_a_run_that_cannot_renew_stops_when_the_lease_may_be_over(database_url: str) -> None:
    """Somebody holds the thread's lock: no renewal comes through, and none is refused."""
    async with scene(database_url) as one:

        @tool(effect="write", approval="never")
        async def wait() -> None:
            async with one.assistant.session(ALICE) as held:
                await held.lock_threads([one.thread_id])
                await asyncio.Event().wait()

        await one.say()
        host = one.host(answer(ToolCall("wait", {})), tools=[wait], stale_after=SHORT)
        report = await host.run_turn(one.thread_id)
        assert report.ended is Ended.LOST
        assert (await one.types())[-1] == "step-finish"
        # Nothing is left behind that would stand in the next run's way.
        host = one.host(answer("Hm."), tools=[wait], stale_after=LONG)
        assert (await until_free(host, one)).ended is Ended.DONE
        await one.healthy()


class Hours:
    """The clocks of the record and of this loop, moved on together."""

    def __init__(self) -> None:
        self.record = Clock()
        self._late = 0.0
        loop = asyncio.get_running_loop()
        time = loop.time
        loop.time = lambda: time() + self._late

    def pass_by(self, seconds: float) -> None:
        self.record.forward(seconds)
        self._late += seconds


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_a_write_that_was_made_twice_is_trusted_from_its_first_try_on(
    database_url: str,
) -> None:
    """The record took the first, and renewed the lease then; the second renewed nothing."""
    hours, tries = Hours(), []

    async def append() -> None:
        delta = {"type": "text-delta", "text": "Hm"}
        tries.append(await one.bot.append_events(**holding.key, events=[delta], batch=1))
        if len(tries) == 1:
            hours.pass_by(6)
            raise Unavailable("the answer is lost")

    async def work() -> None:
        await holding.write(append)
        hours.pass_by(6)
        holding.check()

    async with scene(database_url, clock=hours.record) as one:
        await one.say()
        holding = await take(one.bot, one.thread_id, stale_after=10)
        with pytest.raises(LeaseLost):
            async with holding:
                # As the last write of a run, so that no beat comes between.
                await holding.give_up(work)
        assert len(tries) == 2
        assert (await one.bot.acquire_run(thread_id=one.thread_id, run_id="other")).fence == 2


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_no_tool_begins_when_the_time_is_over_by_which_that_was_recorded(
    database_url: str,
) -> None:
    hours, done = Hours(), []

    def meddle(ops: AsyncOperations) -> None:
        record = ops.record_operation

        async def late(*, kind: str, **given: object) -> object:
            answer = await record(kind=kind, **given)
            if kind == "tool":
                hours.pass_by(20)
            return answer

        ops.record_operation = late

    async with scene(database_url, clock=hours.record) as one:
        await one.say()
        host = one.host(
            answer(ToolCall("look", {"order": 7})),
            tools=[looking(done)],
            assistant=Meddled(one.assistant, meddle),
            stale_after=10,
        )
        assert ((await host.run_turn(one.thread_id)).ended, done) == (Ended.LOST, [])


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_once_the_lease_is_given_up_nothing_renews_it(sqlite_url: str) -> None:
    """A beat is due while the last write is on its way: it waits, and is not made."""
    hours, beats = Hours(), []

    async def work() -> None:
        hours.pass_by(6)
        for _ in range(20):
            await asyncio.sleep(0)
        await one.bot.release_run(**holding.key)

    async with scene(sqlite_url, clock=hours.record) as one:
        await one.say()
        ops = one.bot
        beat = ops.beat_run

        async def counted(**given: object) -> object:
            beats.append(given)
            return await beat(**given)

        ops.beat_run = counted
        holding = await take(ops, one.thread_id, stale_after=10)
        async with holding:
            await asyncio.sleep(0)
            await holding.give_up(work)
            for _ in range(20):
                await asyncio.sleep(0)
        assert (beats, holding.lost) == ([], False)


@pytest.mark.guarantee("G-HOST-53")
@in_loop
async def test_what_is_only_read_renews_no_lease(database_url: str) -> None:
    hours, done, beats = Hours(), [], []

    def meddle(ops: AsyncOperations) -> None:
        beat, get_context = ops.beat_run, ops.get_context

        async def first_beat_only(**given: object) -> object:
            beats.append(given)
            if len(beats) > 1:
                await asyncio.Event().wait()
            return await beat(**given)

        async def late(**given: object) -> object:
            hours.pass_by(6)
            return await get_context(**given)

        ops.beat_run, ops.get_context = first_beat_only, late

    async def ready(call: PreparedCall) -> None:
        hours.pass_by(6)

    async with scene(database_url, clock=hours.record) as one:
        await one.say()
        tools = [refunding(done)]
        await one.host(answer(ToolCall("refund", {"order": 7})), tools=tools).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        engine = Meddled(one.assistant, meddle)
        host = one.host(tools=tools, ready=ready, assistant=engine, stale_after=10)
        assert ((await host.run_turn(one.thread_id)).ended, done) == (Ended.LOST, [])
        host = one.host(answer("Done."), tools=tools)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert len(done) == 1
        await one.healthy()


async def until_free(host: object, one: Scene) -> TurnReport:
    reports: list[TurnReport] = []

    async def ran() -> bool:
        try:
            reports.append(await host.run_turn(one.thread_id))
        except Conflict:
            return False
        return True

    await until(ran)
    return reports[0]


@pytest.mark.guarantee("G-HOST-54")
@in_loop
async def test_a_run_that_is_cancelled_gives_its_lease_up(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        silent = Barrier()
        host = one.host([silent], stale_after=LONG)
        running = asyncio.create_task(host.run_turn(one.thread_id))
        await asyncio.to_thread(silent.reached.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        host = one.host(answer("Here I am."))
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        silent.release()
        await one.healthy()


@pytest.mark.guarantee("G-HOST-54")
@in_loop
async def test_a_run_that_is_cancelled_while_it_tells_of_an_error_gives_its_lease_up(
    database_url: str,
) -> None:
    telling = asyncio.Event()

    def hangs(ops: AsyncOperations) -> None:
        append = ops.append_events

        async def meddled(*, events: Sequence[Known], **given: object) -> object:
            if events[-1].type == "turn-error":
                telling.set()
                await asyncio.Event().wait()
            return await append(events=events, **given)

        ops.append_events = meddled

    async with scene(database_url) as one:
        await one.say()
        host = one.host(
            [ConnectionError()], assistant=Meddled(one.assistant, hangs), stale_after=LONG
        )
        running = asyncio.create_task(host.run_turn(one.thread_id))
        await telling.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        host = one.host(answer("Here I am."))
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        await one.healthy()


@in_loop
async def test_many_runs_want_one_turn_and_one_gets_it(database_url: str) -> None:
    done: list[object] = []
    async with scene(database_url) as one:
        await one.say()
        await one.host(answer(ToolCall("refund", {"order": 7})), tools=[refunding([])]).run_turn(
            one.thread_id
        )
        await one.decide((await one.cards())[0], approved=True)
        hosts = [one.host(answer("Done."), tools=[refunding(done)]) for _ in range(5)]
        came = await asyncio.gather(
            *(host.run_turn(one.thread_id) for host in hosts), return_exceptions=True
        )
        (report,) = [one for one in came if isinstance(one, TurnReport)]
        assert (report.ended, len(done)) == (Ended.DONE, 1)
        reasons = {one.reason for one in came if isinstance(one, Conflict)}
        assert reasons <= {ConflictReason.RUN_IN_PROGRESS, ConflictReason.NO_TURN_OPEN}
        await one.healthy()


# ---------------------------------------------------------------- stop


@pytest.mark.guarantee("G-HOST-55")
@in_loop
async def test_stop_ends_a_turn_whose_model_speaks_and_keeps_what_was_said(
    database_url: str,
) -> None:
    async with scene(database_url) as one:
        async with silent_model(one, stale_after=SHORT) as running:
            await one.me.interrupt_turn(thread_id=one.thread_id)
            # The model is not waited for: it still holds its tongue.
            assert (await running).ended is Ended.INTERRUPTED
        assert (await one.types())[-2:] == ["text-delta", "turn-finish"]
        (finish,) = await one.of("turn-finish")
        assert finish.reason == "interrupted"
        await one.say("Go on")
        host = one.host(answer("Yes?"))
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        assert [m.text for m in request.messages][1:] == ["Hm", "Go on"]
        await one.healthy()


@pytest.mark.guarantee("G-HOST-55")
@in_loop
async def test_stop_is_read_from_the_answer_to_every_write(sqlite_url: str) -> None:
    """No beat is due for ten minutes: the next batch says it."""

    async def words() -> AsyncIterator[object]:
        one_word, result = answer("Hm")
        await one.me.interrupt_turn(thread_id=one.thread_id)
        yield one_word
        await asyncio.Event().wait()
        yield result

    class Talker:
        def stream(self, request: object) -> AsyncIterator[object]:
            return words()

    async with scene(sqlite_url) as one:
        await one.say()
        host = one.host(model=Talker(), stale_after=LONG)
        assert (await host.run_turn(one.thread_id)).ended is Ended.INTERRUPTED


@pytest.mark.guarantee("G-HOST-55")
@in_loop
async def test_stop_lets_the_tool_that_runs_finish_and_runs_no_other(database_url: str) -> None:
    seen: list[object] = []

    @tool(effect="write", approval="never")
    async def wait() -> str:
        await one.me.interrupt_turn(thread_id=one.thread_id)
        seen.append("waited")
        return "done"

    async with scene(database_url) as one:
        await one.say()
        script = answer(ToolCall("wait", {}), ToolCall("look", {"order": 1}))
        host = one.host(script, tools=[wait, looking(seen)], stale_after=LONG)
        assert (await host.run_turn(one.thread_id)).ended is Ended.INTERRUPTED
        calls = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert [call.state for call in calls] == ["done", "cancelled"]
        assert seen == ["waited"]
        await one.healthy()


@pytest.mark.guarantee("G-HOST-45", "G-HOST-55")
@in_loop
async def test_stop_lets_an_approved_call_that_runs_finish_and_claims_no_other(
    database_url: str,
) -> None:
    done: list[int] = []

    @tool(effect="write", approval="always")
    async def refund(order: int) -> dict[str, int]:
        await one.me.interrupt_turn(thread_id=one.thread_id)
        done.append(order)
        return {"refunded": order}

    async with scene(database_url) as one:
        await one.say()
        calls = [ToolCall("refund", {"order": order}) for order in (1, 2)]
        await one.host(answer(*calls), tools=[refund]).run_turn(one.thread_id)
        for card in await one.cards():
            await one.decide(card, approved=True)
        host = one.host(tools=[refund], stale_after=LONG)
        assert (await host.run_turn(one.thread_id)).ended is Ended.INTERRUPTED
        ended = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert [call.state for call in ended] == ["done", "cancelled"]
        assert (ended[0].result, done) == ({"output": {"refunded": 1}}, [1])
        assert len(await one.of("execution-claimed")) == 1
        await one.say("What became of it?")
        host = one.host(answer("One of two."), tools=[refund])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (request,) = one.replays[-1].requests("model")
        told = [r.output for m in request.messages if m.role == "tool" for r in m.results]
        assert (told[0], told[1]["code"], done) == ({"refunded": 1}, "cancelled", [1])
        await one.healthy()


@pytest.mark.guarantee("G-HOST-55")
@pytest.mark.parametrize("grouped", [False, True])
@in_loop
async def test_stop_pressed_twice_ends_a_turn_whose_tool_does_not_finish(
    database_url: str, grouped: bool
) -> None:
    clock, swallowed = Clock(), []

    async def report(context: ToolContext) -> None:
        try:
            await context.report("still at it")
        except Exception:  # noqa: BLE001 - as tools do; that the lease is lost is no failure of it
            swallowed.append("the loss")

    @tool(effect="write", approval="never")
    async def wait(context: ToolContext) -> None:
        await one.me.interrupt_turn(thread_id=one.thread_id)
        clock.forward(11)
        assert (await one.me.interrupt_turn(thread_id=one.thread_id)).ended
        if not grouped:
            await report(context)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(report(context))

    async with scene(database_url, clock=clock) as one:
        await one.say()
        host = one.host(answer(ToolCall("wait", {})), tools=[wait], stale_after=LONG)
        report = await host.run_turn(one.thread_id)
        assert (report.ended, report.unsettled, swallowed) == (Ended.LOST, (), [])
        (call,) = (await one.bot.list_calls(thread_id=one.thread_id)).items
        assert (call.state, await one.turn_state()) == ("unknown", "idle")
        await one.healthy()


# ---------------------------------------------------------------- lost answers


@pytest.fixture
def wire(postgres_url: str) -> Iterator[Wire]:
    made = Wire(sa.make_url(postgres_url))
    yield made
    made.close()


# A delta is one statement without BEGIN and COMMIT; what moves a call or a turn is a transaction.
COMMIT = "COMMIT\0"
LOST = {"a delta": (0, "lost words"), "a call": (1, COMMIT), "the end": (3, COMMIT)}


class CutTalker:
    """A model that says a word, calls, and says another; the wire is cut when it is that far."""

    def __init__(self, wire: Wire, place: int, word: str, *, after: bool) -> None:
        self._cut = (wire, word, after)
        self._place = place
        self._attempts = iter(
            [answer("lost words", ToolCall("look", {"order": 7})), answer("Done.")]
        )

    async def stream(self, request: object) -> AsyncIterator[object]:
        for event in next(self._attempts):
            if not isinstance(event, ToolCallStarted):
                if self._place == 0:
                    wire, word, after = self._cut
                    wire.cut(word, after=after)
                self._place -= 1
            yield event


@pytest.mark.guarantee("G-HOST-56")
@needs_safe_cancel
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", LOST)
@in_loop
async def test_a_batch_whose_answer_is_lost_stands_in_the_log_once(
    postgres_url: str, wire: Wire, place: str, after: bool
) -> None:
    async with scene(postgres_url) as one:
        await one.say()
        wired = AsyncAssistant(make_async_engine(wire.url))
        host = one.host(
            model=CutTalker(wire, *LOST[place], after=after),
            assistant=wired,
            tools=[looking([])],
            stale_after=LONG,
            batching=Batching(bytes=1),
        )
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        await wired.engine.dispose()
        assert wire.cuts == 1
        types = await one.types()
        assert types.count("tool-input") == types.count("tool-output") == 1
        assert [event.text for event in await one.of("text-delta")] == ["lost words", "Done."]
        await one.healthy()


@pytest.mark.guarantee("G-HOST-56")
@in_loop
async def test_a_message_that_was_taken_in_is_told_though_the_answer_was_lost(
    postgres_url: str, wire: Wire
) -> None:
    @tool(effect="read", approval="never")
    async def wait() -> None:
        await one.say("In euros, please", when_busy="steer")

    class Cut(Hooks):
        async def on_tool_results(self, message: object, step: object) -> None:
            wire.cut(COMMIT, after=True)

    async with scene(postgres_url) as one:
        await one.say()
        wired = AsyncAssistant(make_async_engine(wire.url))
        host = one.host(
            *[answer(ToolCall("wait", {})), answer("7 euros.")],
            assistant=wired,
            tools=[wait],
            hooks=Cut(),
            stale_after=LONG,
        )
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        await wired.engine.dispose()
        _, second = one.replays[-1].requests("model")
        assert (wire.cuts, second.messages[-1].text) == (1, "In euros, please")
        assert (await one.types()).count("user-message") == 2


@pytest.mark.guarantee("G-HOST-56")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@in_loop
async def test_people_are_asked_once_and_a_call_is_claimed_once_though_the_answers_were_lost(
    postgres_url: str, wire: Wire, after: bool
) -> None:
    done: list[object] = []

    async def asked(call: PreparedCall, thread: Thread) -> Ask:
        wire.cut(COMMIT, after=after)
        return Ask()

    async def ready(call: PreparedCall) -> None:
        wire.cut(COMMIT, after=after)

    async with scene(postgres_url) as one:
        await one.say()
        wired = AsyncAssistant(make_async_engine(wire.url))
        given = {"assistant": wired, "tools": [refunding(done)], "stale_after": LONG}
        host = one.host(answer(ToolCall("refund", {"order": 7})), approvals=asked, **given)
        assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        (card,) = await one.cards()
        await one.decide(card, approved=True)
        host = one.host(answer("Done."), ready=ready, **given)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        await wired.engine.dispose()
        types = await one.types()
        assert (wire.cuts, len(done)) == (2, 1)
        assert types.count("approval-request") == types.count("execution-claimed") == 1
        await one.healthy()
