"""The async face: the same walk, word for word the same answers."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from engine_assistant import (
    OPERATIONS,
    Assistant,
    AssistantError,
    AsyncAssistant,
    AsyncOperations,
    Caller,
    Operations,
    PermissionDenied,
    make_async_engine,
)
from engine_assistant.assistant import AsyncBound
from engine_assistant.testing.clock import Clock
from tests.rig.stage import ALICE, ASKED, BOB, INPUT, ROBOT, Values, delta, propose

Call = Callable[[Caller, str, Values], dict[str, object]]
Do = Callable[..., dict[str, object]]


@pytest.fixture
def both(engine: Engine, async_database_url: str) -> Iterator[tuple[Call, Call, asyncio.Runner]]:
    """The two faces of one database, by name."""
    there, clock = make_async_engine(async_database_url), Clock()
    sync, other = Assistant(engine, clock=clock), AsyncAssistant(there, clock=clock)

    def answer(call: Callable[[], dict[str, object]]) -> dict[str, object]:
        try:
            return call()
        except AssistantError as error:
            return error.to_dict()

    with asyncio.Runner() as runner:
        yield (
            lambda who, name, values: answer(lambda: sync.acting_as(who).call(name, values)),
            lambda who, name, values: answer(
                lambda: runner.run(other.acting_as(who).call(name, values))
            ),
            runner,
        )
        runner.run(there.dispose())


def _walk(call: Call, tenant: str) -> Iterator[dict[str, object]]:
    """Use every operation, in its right moment and in a wrong one."""

    def do(who: Caller, name: str, **values: object) -> dict[str, object]:
        return call(replace(who, tenant=tenant), f"assistant/{name}", values)

    thread = do(ALICE, "create-thread", title="Refund")
    yield thread
    at = {"thread_id": thread["id"]}
    yield do(ALICE, "create-thread", title="")
    yield do(BOB, "get-thread", **at)
    yield do(ALICE, "acquire-run", **at, run_id="r1")
    yield do(ROBOT, "acquire-run", **at, run_id="r1")
    file = {"filename": "a", "content_type": "b", "size": 0, "sha256": "0" * 64}
    file_id = do(ROBOT, "register-file", **at, **file)["id"]
    yield do(ALICE, "authorize-file-upload", **at)
    yield do(ALICE, "send-message", **at, text="hi", attachment_ids=[file_id], key="m")
    yield do(ALICE, "send-message", **at, text="hi", attachment_ids=[file_id], key="m")
    yield do(ALICE, "send-message", **at, text="again")
    lease = do(ROBOT, "acquire-run", **at, run_id="r1")
    yield lease
    run = {**at, "run_id": "r1", "fence": lease["fence"]}
    yield do(ROBOT, "append-events", **run, events=[delta("x")], batch=1)
    yield do(ROBOT, "append-events", **run, events=[delta("x")], batch=1)
    yield do(ROBOT, "append-events", **run, events=[propose("c"), propose("d")], batch=2)
    yield do(ROBOT, "append-events", **run, events=[delta("gap")], batch=4)
    asked = do(ROBOT, "request-approval", **run, call_id="c", **ASKED, expires_in=60.0)
    yield asked
    yield do(ROBOT, "claim-execution", **run, call_id="c", **ASKED, input=INPUT)
    requests = asked["requests"]
    assert isinstance(requests, list)
    say = {**at, "call_id": "c", "approved": True, "version": "v1"}
    yield do(ALICE, "list-approvals")
    yield do(BOB, "resolve-approval", **say, digest=requests[0]["digest"])
    yield do(ALICE, "resolve-approval", **say, digest="0" * 64)
    yield do(ALICE, "resolve-approval", **say, digest=requests[0]["digest"])
    yield do(ROBOT, "beat-run", **run)
    yield do(ROBOT, "claim-execution", **run, call_id="c", **ASKED, input={})
    yield do(ROBOT, "claim-execution", **run, call_id="c", **ASKED, input=INPUT)
    yield do(ROBOT, "release-run", **run)
    yield do(ROBOT, "settle-execution", **at, call_id="c", claimed_fence=run["fence"], output=1)
    yield do(ALICE, "get-call", **at, call_id="c")
    yield do(ALICE, "list-calls", **at, limit=1)
    yield do(ALICE, "read-events", **at, after=1, limit=5)
    yield do(ALICE, "read-events", **at, last=2)
    yield do(ALICE, "interrupt-turn", **at)
    yield do(ALICE, "list-threads", limit=1)
    yield from _told(do, at)
    yield do(ALICE, "close-thread", **at)
    yield from _busy(do)
    yield from _recovered(do)
    yield do(ALICE, "no-such-operation")


def _told(do: Do, at: Values) -> Iterator[dict[str, object]]:
    """What a model is told, summaries, and threads that begin with messages."""
    told = do(ALICE, "history", **at)
    yield told
    yield do(ALICE, "history", **at, budget=1)
    summary = {**at, "from_seq": 1, "to_seq": 2, "summary": "Alice greets."}
    yield do(ROBOT, "compact", **summary, expected_head=told["head_seq"])
    yield do(ROBOT, "compact", **summary, expected_head=told["head_seq"])
    yield do(ROBOT, "compact", **at, from_seq=2, to_seq=3, summary="x", expected_head=0)
    yield do(ALICE, "list-compactions", **at, limit=1)
    said = [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "hello"}]
    seeds = {"subject": "usr_alice", "key": "seeded", "messages": said}
    yield do(ROBOT, "seed-thread", **seeds)
    yield do(ROBOT, "seed-thread", **seeds)
    yield do(ROBOT, "seed-thread", **seeds, title="Another")


def _recovered(do: Do) -> Iterator[dict[str, object]]:
    """Runs as a record, private context, and calls that nobody can tell of."""
    at = {"thread_id": do(ALICE, "create-thread")["id"]}
    do(ALICE, "send-message", **at, text="one")
    lost = {**at, "run_id": "r0", "fence": do(ROBOT, "acquire-run", **at, run_id="r0")["fence"]}
    proposals = [propose(call_id, repeatable=call_id != "z") for call_id in "xyz"]
    usage = {"input": {"value": 3, "provenance": "reported"}}
    yield do(ROBOT, "append-events", **lost, events=proposals, usage=usage)
    does = {"operation_id": "o", "kind": "model", "phase": "asked"}
    yield do(ROBOT, "record-operation", **lost, **does)
    yield do(ROBOT, "record-operation", **lost, **does, step="s", first_output=True)
    yield do(ROBOT, "put-context", **lost, state="opaque")
    yield do(ROBOT, "release-run", **lost)
    run = {**at, "run_id": "r1", "fence": do(ROBOT, "acquire-run", **at, run_id="r1")["fence"]}
    yield do(ROBOT, "get-context", **run)
    yield do(ROBOT, "get-context", **lost)
    yield do(ROBOT, "retry-call", **run, call_id="x", attempt=1)
    yield do(ROBOT, "retry-call", **run, call_id="x", attempt=1)
    yield do(ROBOT, "retry-call", **run, call_id="x")
    yield do(ROBOT, "retry-call", **run, call_id="y", **ASKED, input=INPUT)
    yield do(ROBOT, "retry-call", **run, call_id="z")
    yield do(BOB, "resolve-unknown", **at, call_id="y", happened=True)
    yield do(ALICE, "resolve-unknown", **at, call_id="y", happened=True, output=[1])
    yield do(ALICE, "resolve-unknown", **at, call_id="y", happened=True, output=[1])
    yield do(ALICE, "resolve-unknown", **at, call_id="z", happened=False, reason="I looked")
    yield do(ALICE, "list-runs", **at, limit=1)
    yield do(ALICE, "get-run", **at, fence=1)
    yield do(BOB, "get-run", **at, fence=1)


def _busy(do: Do) -> Iterator[dict[str, object]]:
    """Messages that wait, and turns that are given up."""
    at = {"thread_id": do(ALICE, "create-thread")["id"]}
    do(ALICE, "send-message", **at, text="one", key="m")
    waits = do(ALICE, "send-message", **at, text="two", when_busy="queue", priority="next")
    yield waits
    yield do(ALICE, "edit-input", **at, input_id=waits["input_id"], text="2")
    yield do(BOB, "cancel-input", **at, input_id=waits["input_id"])
    steered = do(ALICE, "send-message", **at, text="three", when_busy="steer", coalesce=True)
    yield do(ALICE, "list-inputs", **at, limit=1)
    yield do(ROBOT, "acquire-run", **at, run_id="r1")
    yield do(ROBOT, "take-inputs", **at, run_id="r1", fence=1)
    yield do(ALICE, "cancel-input", **at, input_id=steered["input_id"])
    yield do(ROBOT, "abandon-turn", **at, reason="gone")
    yield do(ROBOT, "abandon-turn", **at, reason="gone", fence=1, turn=1)
    yield do(ROBOT, "abandon-turn", **at, reason="gone", fence=1, turn=1)
    yield do(ALICE, "send-message", **at, text="one", key="m")
    yield do(ALICE, "list-inputs", **at)


def _without_chance(answers: list[dict[str, object]]) -> list[str]:
    """Leave out what is minted: ids, nonces, digests, and cursors made from ids."""
    minted = r"[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{64}|[0-9a-f]{32}|'cursor': '[^']+'"
    return [re.sub(minted, "*", repr(answer)) for answer in answers]


@pytest.mark.guarantee("G-OPS-47")
def test_both_faces_answer_the_same(both: tuple[Call, Call, asyncio.Runner]) -> None:
    sync, other, _ = both
    used: set[str] = set()

    def noting(who: Caller, name: str, values: Values) -> dict[str, object]:
        used.add(name)
        return sync(who, name, values)

    here, there = list(_walk(noting, "here")), list(_walk(other, "there"))
    assert _without_chance(here) == _without_chance(there)
    assert set(OPERATIONS) <= used


@pytest.mark.guarantee("G-OPS-47")
def test_each_face_reads_what_the_other_wrote(both: tuple[Call, Call, asyncio.Runner]) -> None:
    sync, other, _ = both
    thread = sync(ALICE, "assistant/create-thread", {"title": "a\u202e\U0001f600", "key": "k"})
    assert other(ALICE, "assistant/create-thread", {"title": thread["title"], "key": "k"}) == thread
    sent = other(ALICE, "assistant/send-message", {"thread_id": thread["id"], "text": "a\0b"})
    which = {"thread_id": thread["id"]}
    page = sync(ALICE, "assistant/read-events", which)
    assert page == other(ALICE, "assistant/read-events", which)
    assert page["events"][0]["input_id"] == sent["input_id"]


@pytest.mark.guarantee("G-OPS-47")
def test_both_faces_have_the_same_methods_with_the_same_arguments() -> None:
    for name, method in inspect.getmembers(Operations, inspect.isfunction):
        if name.startswith("_"):
            continue
        twin = getattr(AsyncOperations, name)
        assert inspect.iscoroutinefunction(twin), name
        assert inspect.signature(twin) == inspect.signature(method), name


@pytest.mark.guarantee("G-OPS-47")
def test_the_async_doors_join_commit_and_roll_back(async_database_url: str) -> None:
    async def main() -> None:
        there = make_async_engine(async_database_url)
        assistant = AsyncAssistant(there)
        async with assistant.session(ALICE) as ops:
            kept = await ops.create_thread(title="kept")

        async def fails() -> None:
            async with assistant.session(ALICE) as ops:
                await ops.create_thread(title="lost")
                raise LookupError

        with pytest.raises(LookupError):
            await fails()
        async with there.connect() as connection:
            bound = assistant.bind(connection, ALICE)
            await bound.create_thread(title="rolled back")
            await connection.rollback()

        async def twice(ops: AsyncBound) -> str:
            await ops.lock_threads([kept.id])
            receipt = await ops.send_message(thread_id=kept.id, text="hi")
            return receipt.input_id

        assert await assistant.transact(ALICE, twice)
        me = assistant.acting_as(ALICE)
        assert [one.title for one in (await me.list_threads()).items] == ["kept"]
        assert b"user-message" in await me.read_events_json(thread_id=kept.id)
        assert [one.thread_id for one in await assistant.list_runnable()] == [kept.id]
        with pytest.raises(PermissionDenied):
            await assistant.acting_as(Caller("acme", "usr_alice", ())).list_threads()
        await there.dispose()

    asyncio.run(main())


@pytest.mark.guarantee("G-OPS-47")
def test_many_at_once_each_get_their_own_answer(async_database_url: str) -> None:
    async def main() -> None:
        there = make_async_engine(async_database_url)
        me = AsyncAssistant(there, retry_for=30).acting_as(ALICE)
        made = await asyncio.gather(*(me.create_thread(title=str(n)) for n in range(20)))
        assert [one.title for one in made] == [str(n) for n in range(20)]
        same = await asyncio.gather(*(me.create_thread(key="k") for _ in range(10)))
        assert len({one.id for one in same}) == 1
        await there.dispose()

    asyncio.run(main())
