"""A service: it finds turns, runs each once, leaves alone what fails, and comes to rest."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa

from engine_assistant import (
    USE,
    AsyncAssistant,
    Caller,
    Conflict,
    ConflictReason,
    Internal,
    Runnable,
    make_async_engine,
)
from engine_assistant.host import (
    AssistantHost,
    AssistantMessage,
    Ended,
    ModelRequest,
    ModelResult,
    Service,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    TurnReport,
    serve_health,
    tool,
)
from engine_assistant.host.setbacks import Setbacks
from engine_assistant.testing.clock import Clock
from engine_assistant.testing.databases import awaited
from engine_assistant.testing.replay import answer
from tests.host.assistants import ALICE, ROBOT, Scene, in_loop, scene, until
from tests.host.test_assistant_lease import LONG, take_over
from tests.rig.wires import Wire, needs_safe_cancel

FAST = 0.02
NEVER = 3600.0

BEATRICE = Caller(tenant="bakery", principal="usr_beatrice", permissions={USE})


class Parrot:
    """A model that says one word to everybody, once it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = asyncio.Event()
        self.let.set()
        self.together: asyncio.Barrier | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResult]:
        self.asked += 1
        if self.together is not None:
            await self.together.wait()
        yield TextDelta(text="Yes.")
        await self.let.wait()
        message = AssistantMessage((Text("Yes."),))
        yield ModelResult(message=message, stop_reason=StopReason.END_TURN)


def parrot(assistant: AsyncAssistant) -> AssistantHost:
    return AssistantHost(assistant=assistant, caller=ROBOT, model=Parrot())


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[asyncio.Task[None]]:
    """Run a service beside the block, and break it off at its end."""
    task = asyncio.create_task(service.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def ask(assistant: AsyncAssistant, who: Caller, count: int = 1) -> list[str]:
    """Open threads, and say something in each."""
    me = assistant.acting_as(who)
    threads = [(await me.create_thread()).id for _ in range(count)]
    for thread in threads:
        await me.send_message(thread_id=thread, text="Are you there?")
    return threads


def is_true(what: Callable[[], bool]) -> Callable[[], object]:
    async def asked() -> bool:
        return what()

    return asked


@pytest.mark.guarantee("G-SERVE-01", "G-SERVE-02")
@in_loop
async def test_it_runs_the_turns_of_every_tenant_so_many_at_a_time(database_url: str) -> None:
    told: list[tuple[str, Ended]] = []
    running: list[int] = []

    def tell(one: Runnable, report: TurnReport) -> None:
        told.append((one.tenant, report.ended))
        running.append(service.health.running)

    async with scene(database_url) as one:
        host = parrot(one.assistant)
        host.model.together = asyncio.Barrier(2)
        await ask(one.assistant, ALICE, 5)
        await ask(one.assistant, BEATRICE, 1)
        service = Service(host, concurrency=2, every=FAST, on_report=tell)
        assert service.health.last_poll is None
        async with serving(service):
            await until(is_true(lambda: len(told) == 6))
        assert sorted(told) == [*[("acme", Ended.DONE)] * 5, ("bakery", Ended.DONE)]
        # The other tenant does not wait until the first has nothing left.
        assert ("bakery", Ended.DONE) in told[:2]
        assert (host.model.asked, max(running)) == (6, 2)
        health = service.health
        assert (health.running, health.picked_up, health.failed) == (0, 6, 0)
        assert health.last_poll is not None
        await one.healthy()


@pytest.mark.guarantee("G-SERVE-03")
@in_loop
async def test_two_services_on_one_record_never_run_a_turn_twice(database_url: str) -> None:
    async with scene(database_url) as one:
        other = AsyncAssistant.from_url(awaited(database_url))
        hosts = [parrot(one.assistant), parrot(other)]
        services = [Service(host, concurrency=4, every=FAST) for host in hosts]
        threads = await ask(one.assistant, ALICE, 12)

        async def all_rest() -> bool:
            return await one.assistant.survey(unrested=True) == []

        async with serving(services[0]), serving(services[1]):
            await until(all_rest)
            await until(is_true(lambda: not sum(one.health.running for one in services)))
        await other.engine.dispose()
        assert sum(host.model.asked for host in hosts) == 12
        assert sum(service.health.picked_up for service in services) == 12
        assert sum(service.health.failed for service in services) == 0
        for thread in threads:
            runs = await one.bot.list_runs(thread_id=thread)
            assert [run.reason for run in runs.items] == ["done"]


@pytest.mark.guarantee("G-SERVE-04")
@in_loop
async def test_a_hint_wakes_it_and_so_does_a_message_that_waited(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        host = parrot(one.assistant)
        service = Service(host, every=NEVER, longest_pause=NEVER)
        async with serving(service):
            await until(is_true(lambda: service.health.last_poll is not None))
            await one.say()
            await one.say("And then?", when_busy="queue")
            service.hint()
            await until(is_true(lambda: host.model.asked == 2))


@pytest.mark.guarantee("G-SERVE-05")
@in_loop
async def test_a_thread_that_fails_again_and_again_keeps_nobody_waiting(sqlite_url: str) -> None:
    refused: list[str] = []

    async with scene(sqlite_url) as one:
        host = parrot(one.assistant)

        def for_tenant(tenant: str) -> AssistantHost:
            if tenant == "bakery":
                refused.append(tenant)
                raise LookupError(tenant)
            return host

        async def rested() -> bool:
            return await one.turn_state() == "idle"

        await ask(one.assistant, BEATRICE)
        service = Service(host, for_tenant=for_tenant, concurrency=1, every=FAST)
        async with serving(service):
            for number in range(1, 6):
                await one.say()
                await until(is_true(lambda number=number: host.model.asked == number))
                await until(rested)
            await until(is_true(lambda: len(refused) >= 3))
        assert service.health.failed == len(refused)


@pytest.mark.guarantee("G-SERVE-05")
def test_a_pause_doubles_ends_and_is_forgotten() -> None:
    now = 0.0
    setbacks = Setbacks(1.0, 10.0, clock=lambda: now)
    key, until_then = ("acme", "t1"), []
    for _ in range(6):
        setbacks.failed(key)
        began = now
        while setbacks.left_alone():
            now += 0.5
        until_then.append(now - began)
    assert until_then == [1, 2, 4, 8, 10, 10]
    setbacks.put_off(key)
    assert setbacks.left_alone() == [key]
    now += 1
    assert setbacks.left_alone() == []
    now += 10
    assert setbacks.left_alone() == []
    setbacks.failed(key)
    now += 1
    assert setbacks.left_alone() == []  # the first again
    setbacks.failed(key)
    setbacks.forget(key)
    assert setbacks.left_alone() == []
    for number in range(1500):
        setbacks.failed(("acme", str(number)))
    assert len(setbacks.left_alone()) == 1000


@pytest.mark.guarantee("G-SERVE-05")
@in_loop
async def test_a_turn_that_is_not_to_be_had_is_not_asked_for_again_at_once(sqlite_url: str) -> None:
    refused: list[str] = []

    async with scene(sqlite_url) as one:
        host = parrot(one.assistant)

        def for_tenant(tenant: str) -> AssistantHost:
            if tenant == "bakery":
                refused.append(tenant)
                raise Conflict(ConflictReason.RUN_IN_PROGRESS, "Somebody else was faster.")
            return host

        await ask(one.assistant, BEATRICE)
        await one.say()
        service = Service(
            host, for_tenant=for_tenant, concurrency=1, every=NEVER, longest_pause=NEVER
        )
        async with serving(service):
            await until(is_true(lambda: host.model.asked == 1 and not service.health.running))
        assert (refused, service.health.picked_up, service.health.failed) == (["bakery"], 1, 0)


@asynccontextmanager
async def speaking(one: Scene, **given: float) -> AsyncIterator[tuple[Service, asyncio.Event]]:
    """Give a service in the middle of a turn, and what lets its model go on."""
    host = parrot(one.assistant)
    host.model.let.clear()
    await one.say()
    service = Service(host, every=FAST, **given)

    async def begun() -> bool:
        return "text-delta" in await one.types()

    async with serving(service) as task:
        await until(begun)
        yield service, host.model.let
        await task


@pytest.mark.guarantee("G-SERVE-06")
@in_loop
async def test_told_to_stop_it_lets_a_turn_come_to_rest_and_begins_none(database_url: str) -> None:
    async with scene(database_url) as one, speaking(one) as (service, let):
        service.stop()
        assert service.health.draining
        await ask(one.assistant, ALICE)
        let.set()
    assert service.health.picked_up == 1
    async with scene(database_url) as after:
        found = await after.assistant.list_runnable()
        assert [left.thread_id == one.thread_id for left in found] == [False]


class Slow:
    """The engine, with an answer to what there is to run that is on its way for long."""

    def __init__(self, assistant: AsyncAssistant) -> None:
        self._assistant = assistant
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def list_runnable(self, **given: object) -> list[Runnable]:
        found = await self._assistant.list_runnable(**given)
        self.asked.set()
        await self.let.wait()
        return found


@pytest.mark.guarantee("G-SERVE-06")
@in_loop
async def test_told_to_stop_it_begins_nothing_that_it_has_just_found(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        await one.say()
        slow = Slow(one.assistant)
        service = Service(replace(parrot(one.assistant), assistant=slow), every=FAST)
        async with serving(service) as task:
            await slow.asked.wait()
            service.stop()
            slow.let.set()
            await task
        assert service.health.picked_up == 0
        assert len(await one.assistant.list_runnable()) == 1


@pytest.mark.guarantee("G-SERVE-06")
@in_loop
@pytest.mark.parametrize("how", ["grace", "asked again"])
async def test_a_turn_that_does_not_rest_in_time_gives_its_lease_up(
    sqlite_url: str, how: str
) -> None:
    grace = 0.0 if how == "grace" else NEVER
    async with scene(sqlite_url) as one:
        async with speaking(one, grace=grace) as (service, _):
            service.stop()
            await asyncio.sleep(0)
            if how == "asked again":
                service.stop()
        (left,) = await one.assistant.list_runnable()
        assert (left.thread_id, left.why) == (one.thread_id, "no-run")
        assert await one.turn_state() == "open"


@pytest.mark.guarantee("G-SERVE-07")
@in_loop
async def test_a_result_that_came_when_the_lease_was_lost_is_brought_in(database_url: str) -> None:
    clock, reports = Clock(), []

    @tool(effect="write", approval="always")
    async def refund(order: int) -> dict[str, int]:
        await take_over(one, clock)
        return {"refunded": order}

    async with scene(database_url, clock=clock) as one:
        await one.say()
        asks = one.host(answer(ToolCall("refund", {"order": 7})), tools=[refund])
        await asks.run_turn(one.thread_id)
        await one.decide((await one.cards())[0], approved=True)
        host = replace(asks, stale_after=LONG)
        service = Service(host, every=FAST, on_report=lambda _, report: reports.append(report))
        async with serving(service):
            await until(is_true(lambda: len(reports) == 1))
        assert [report.ended for report in reports] == [Ended.LOST]
        (late,) = await one.of("tool-output")
        assert (late.late, late.output) == (True, {"refunded": 7})
        assert service.health.failed == 1


@pytest.mark.guarantee("G-SERVE-08")
@needs_safe_cancel
@in_loop
async def test_a_record_that_does_not_answer_is_asked_again(postgres_url: str) -> None:
    wire = Wire(sa.make_url(postgres_url))
    assistant = AsyncAssistant(make_async_engine(wire.url))
    try:
        host = parrot(assistant)
        await ask(assistant, ALICE)
        wire.cut("row_number", after=False)
        async with serving(Service(host, every=FAST)):
            await until(is_true(lambda: host.model.asked == 1))
        assert wire.cuts == 1
    finally:
        await assistant.engine.dispose()
        wire.close()


@pytest.mark.guarantee("G-SERVE-08")
@in_loop
async def test_a_record_that_is_not_there_is_not_asked_again(empty_database_url: str) -> None:
    assistant = AsyncAssistant.from_url(awaited(empty_database_url))
    with pytest.raises(Internal):
        await Service(parrot(assistant), every=FAST).run()
    await assistant.engine.dispose()


@pytest.mark.guarantee("G-SERVE-09")
@in_loop
async def test_its_health_is_told_on_loopback(sqlite_url: str) -> None:
    async def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, object]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        read = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        head, _, body = read.partition("\r\n\r\n")
        return int(head.split()[1]), json.loads(body or "{}")

    async with scene(sqlite_url) as one, speaking(one) as (service, let):
        async with serve_health(service, 0) as port:
            status, told = await get(port, "/health")
            assert (status, told["running"], told["picked_up"]) == (200, 1, 1)
            assert (told["failed"], told["draining"]) == (0, False)
            assert told["last_poll"].endswith("+00:00")
            with pytest.raises(OSError, match=r".+"):  # another address of this machine
                await asyncio.open_connection("127.0.0.2", port)
            assert await get(port, "/other") == (404, {})
            assert await get(port, "/health", "POST") == (405, {})
            service.stop()
            status, told = await get(port, "/health")
            assert (status, told["draining"]) == (503, True)
        let.set()


@pytest.mark.parametrize(
    "given", [{"concurrency": 0}, {"every": 0}, {"every": 2, "longest_pause": 1}, {"grace": -1}]
)
def test_numbers_that_cannot_be_are_refused(given: dict[str, float]) -> None:
    host = AssistantHost(assistant=None, caller=ROBOT, model=Parrot())
    with pytest.raises(ValueError, match="concurrency is 1 or more"):
        Service(host, **given)


@in_loop
async def test_it_runs_once(sqlite_url: str) -> None:
    async with scene(sqlite_url) as one:
        service = Service(parrot(one.assistant), every=FAST)
        service.stop()
        await service.run()
        with pytest.raises(RuntimeError, match="runs once"):
            await service.run()
