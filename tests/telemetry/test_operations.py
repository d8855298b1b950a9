"""What an observer is told, and what the real SDK makes of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.trace import StatusCode
from sqlalchemy import Engine

from engine_assistant import (
    Assistant,
    AssistantError,
    AsyncAssistant,
    Conflict,
    Internal,
    NotFound,
    OperationBegun,
    OperationEnded,
    ValidationFailed,
    make_async_engine,
)
from engine_assistant.testing.clock import Clock
from tests.rig.guest import python
from tests.rig.stage import ALICE, ROBOT, delta
from tests.telemetry.sdk import Sdk

SECRET = "4111-1111-1111-1111"


@dataclass
class Notes:
    """An observer that keeps what it was told."""

    begun: list[OperationBegun] = field(default_factory=list)
    ended: list[OperationEnded] = field(default_factory=list)

    def __call__(self, begun: OperationBegun, /) -> Callable[[OperationEnded], None]:
        self.begun.append(begun)
        return self.ended.append


def refused(kind: type[AssistantError], work: Callable[[], object]) -> None:
    with pytest.raises(kind):
        work()


@pytest.mark.guarantee("G-OTEL-01")
def test_an_operation_is_a_span_with_its_ids_and_its_outcome(engine: Engine, sdk: Sdk) -> None:
    assistant = Assistant(engine, observer=sdk.observer)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread = me.create_thread(title=SECRET)
    made = {"engine_assistant.operation": "create_thread", "engine_assistant.tenant": "acme"}
    assert dict(sdk.last("create_thread").attributes) == made | {
        "engine_assistant.thread": thread.id,
        "engine_assistant.turn": 0,
        "engine_assistant.outcome": "ok",
    }
    me.send_message(thread_id=thread.id, text="Hello")
    assert sdk.last("send_message").attributes["engine_assistant.turn"] == 1
    lease = bot.acquire_run(thread_id=thread.id, run_id="r1")
    assert sdk.last("acquire_run").attributes["engine_assistant.fence"] == lease.fence
    with sdk.tracer.start_as_current_span("mine") as mine:
        bot.append_events(thread_id=thread.id, run_id="r1", fence=lease.fence, events=[delta("Hi")])
    span = sdk.last("append_events")
    assert dict(span.attributes) == {
        "engine_assistant.operation": "append_events",
        "engine_assistant.tenant": "acme",
        "engine_assistant.thread": thread.id,
        "engine_assistant.fence": lease.fence,
        "engine_assistant.outcome": "ok",
    }
    assert span.parent is not None
    assert span.parent.span_id == mine.get_span_context().span_id
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.guarantee("G-OTEL-02")
def test_no_content_is_in_a_span_and_errors_are_told_by_their_codes(
    engine: Engine, sdk: Sdk
) -> None:
    assistant = Assistant(engine, observer=sdk.observer)
    me = assistant.acting_as(ALICE)
    thread = me.create_thread(title=SECRET)
    me.send_message(thread_id=thread.id, text=SECRET, key=SECRET)
    refused(Conflict, lambda: me.send_message(thread_id=thread.id, text=SECRET))
    assert sdk.last("send_message").attributes["error.type"] == "turn_in_progress"
    assert sdk.last("send_message").attributes["engine_assistant.outcome"] == "conflict"
    assert sdk.last("send_message").status.status_code is StatusCode.UNSET
    refused(NotFound, lambda: me.get_thread(thread_id="nobody"))
    assert sdk.last("get_thread").attributes["error.type"] == "not_found"
    # What is no id at all may be anything.
    refused(ValidationFailed, lambda: me.get_thread(thread_id=f"{SECRET} " * 9))
    assert "engine_assistant.thread" not in sdk.last("get_thread").attributes
    refused(ValidationFailed, lambda: me.call("assistant/get-thread", {"thread_id": [SECRET]}))
    told = [span.to_json() for span in sdk.spans]
    assert len(told) == 6
    assert not [one for one in told if SECRET in one]
    assert not [span for span in sdk.spans if span.events or span.status.description]


@pytest.mark.guarantee("G-OTEL-02")
def test_a_fault_is_an_error_of_its_span_and_says_nothing_else(tmp_path: Path, sdk: Sdk) -> None:
    empty = Assistant.from_url(f"sqlite:///{tmp_path}/empty.db", observer=sdk.observer)
    refused(Internal, lambda: empty.acting_as(ALICE).get_thread(thread_id="t"))
    empty.engine.dispose()
    span = sdk.last("get_thread")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.status.description, span.attributes["error.type"]) == (None, "internal")
    assert span.events == ()


@pytest.mark.guarantee("G-OTEL-03")
def test_lost_leases_fence_refusals_and_appends_are_counted(engine: Engine, sdk: Sdk) -> None:
    clock = Clock()
    assistant = Assistant(engine, clock=clock, observer=sdk.observer)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread = me.create_thread()
    me.send_message(thread_id=thread.id, text="Hello")
    first = bot.acquire_run(thread_id=thread.id, run_id="r1", stale_after=15.0)
    held = {"thread_id": thread.id, "run_id": "r1", "fence": first.fence}
    bot.append_events(**held, events=[delta("a")])
    assert sdk.points("lease.losses") == sdk.points("fence.refusals") == []
    clock.forward(60)
    assert bot.acquire_run(thread_id=thread.id, run_id="r2").took_over
    refused(Conflict, lambda: bot.append_events(**held, events=[delta("b")]))
    refused(Conflict, lambda: bot.beat_run(**held))
    assert sdk.points("lease.losses") == [({}, 1)]
    named = "engine_assistant.operation"
    assert sorted(sdk.points("fence.refusals"), key=str) == [
        ({named: "append_events"}, 1),
        ({named: "beat_run"}, 1),
    ]
    outcome = "engine_assistant.outcome"
    assert sorted(sdk.points("append.duration"), key=str) == [
        ({outcome: "conflict"}, 1),
        ({outcome: "ok"}, 1),
    ]


@pytest.mark.guarantee("G-OTEL-01")
def test_the_async_door_and_the_hosts_transaction_are_looked_on_alike(
    engine: Engine, async_database_url: str, sdk: Sdk
) -> None:
    notes = Notes()
    assistant = Assistant(engine, observer=notes)
    with assistant.session(ALICE) as bound:
        thread = bound.create_thread()
    (ended,) = notes.ended
    assert (ended.outcome, ended.thread_id, ended.turn) == ("ok", thread.id, 0)
    assert ended.seconds > 0

    async def ask() -> list[str]:
        other = AsyncAssistant(make_async_engine(async_database_url), observer=sdk.observer)
        try:
            async with asyncio.TaskGroup() as tasks:
                me = other.acting_as(ALICE)
                for _ in range(3):
                    tasks.create_task(me.get_thread(thread_id=thread.id))
            async with other.session(ALICE) as bound:
                await bound.get_thread(thread_id=thread.id)
        finally:
            await other.engine.dispose()
        return [span.attributes["engine_assistant.thread"] for span in sdk.spans]

    assert asyncio.run(ask()) == [thread.id] * 4
    assert not [span for span in sdk.spans if span.parent is not None]


@pytest.mark.guarantee("G-OTEL-04")
def test_an_observer_that_fails_changes_no_answer(engine: Engine) -> None:
    def at_once(begun: OperationBegun, /) -> Callable[[OperationEnded], None]:
        raise RuntimeError(begun.operation)

    def at_last(begun: OperationBegun, /) -> Callable[[OperationEnded], None]:
        def tell(ended: OperationEnded) -> None:
            raise RuntimeError(ended.outcome)

        return tell

    for observer in (at_once, at_last):
        me = Assistant(engine, observer=observer).acting_as(ALICE)
        thread = me.create_thread()
        assert me.get_thread(thread_id=thread.id) == thread
        refused(NotFound, lambda me=me: me.get_thread(thread_id="nobody"))


@pytest.mark.guarantee("G-OTEL-04")
def test_nothing_is_loaded_that_nobody_asked_for() -> None:
    done = python(
        "import sys, engine_assistant, engine_assistant.host\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert done.stdout.strip() == "[]", done.stderr
