"""What is known of a run, and what becomes of what it left behind."""

from functools import partial

import pytest

from engine_assistant import RUN, USE, ConflictReason, NotFound, Operations, PermissionDenied
from engine_assistant.model.views.runs import RunOperation
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import (
    INPUT,
    SHORT,
    Held,
    Stage,
    finish,
    later,
    output,
    proposal,
    words,
)


def _lost(stage: Stage, *, repeatable: bool) -> tuple[Held, Held]:
    """Lose a run with its call; return it, and the run that took its place."""
    held = stage.running(stale_after=SHORT)
    stage.bot.append_events(**held, events=[proposal(repeatable=repeatable)])
    new = stage.take_over(held["thread_id"])
    assert stage.state(held["thread_id"]) == "unknown"
    return held, new


def _figure(value: int, provenance: str = "reported") -> dict[str, object]:
    return {"value": value, "provenance": provenance}


@shows("G-RUN-01", "G-RUN-02", "G-RUN-07")
def a_run_stays_to_be_read(stage: Stage) -> None:
    """Each holding of the lease says by what it ended; only the live one has a lease."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.bot.release_run(**held)
    second = stage.take(thread_id, "run-b")
    live = stage.me.get_run(thread_id=thread_id, fence=second["fence"])
    assert (live.state, live.reason, live.ended_at) == ("running", None, None)
    assert live.lease_until is not None
    stage.bot.append_events(**second, events=[finish("max-tokens")])
    runs = stage.auditor.list_runs(thread_id=thread_id)
    assert [(one.run_id, one.state, one.reason, one.turn) for one in runs.items] == [
        ("run-b", "finished", "max-tokens", 1),
        ("run-a", "released", "released", 1),
    ]
    assert all(one.ended_at and one.lease_until is None for one in runs.items)
    page = stage.me.list_runs(thread_id=thread_id, limit=1)
    older = stage.me.list_runs(thread_id=thread_id, limit=1, cursor=page.cursor)
    assert (*page.items, *older.items) == runs.items
    with pytest.raises(NotFound):
        stage.bob.list_runs(thread_id=thread_id)


@shows("G-RUN-03", "G-RUN-04", "G-RUN-05", "G-RUN-06")
def what_a_run_does_and_uses_up_is_kept(stage: Stage) -> None:
    """The newest usage replaces the one before; an operation keeps the time of its start."""
    held = stage.running()

    def does(held: Held, phase: str, *, spoke: bool = False) -> RunOperation:
        return stage.bot.record_operation(
            **held, operation_id="o1", kind="model", phase=phase, first_output=spoke
        )

    began = does(held, "asked")
    stage.bot.append_events(**held, events=[words("a")], usage={"input": _figure(900)})
    if stage.setup.clock is not None:
        stage.setup.clock.forward(1)
    spoke = does(held, "speaks", spoke=True)
    assert (began.first_output_at, spoke.started_at) == (None, began.started_at)
    assert spoke.first_output_at is not None
    with stage.refused(ConflictReason.RUN_FENCED, held["thread_id"]):
        does(later(held), "speaks")
    cost = {"value": "0.1250", "currency": "EUR", "provenance": "computed"}
    last = {"output": _figure(12, "computed"), "cost": cost}
    stage.bot.append_events(**held, events=[finish()], usage=last)
    run = stage.me.get_run(thread_id=held["thread_id"], fence=held["fence"])
    assert run.usage is not None
    assert run.usage.model_dump(mode="json", exclude_none=True) == last
    assert run.operation == spoke
    assert (run.state, run.reason) == ("finished", "done")


@shows("G-RETRY-01", "G-RETRY-04", "G-RETRY-10")
def a_repeatable_call_runs_again_and_no_other(stage: Stage) -> None:
    """The right moves to the run that retries; whoever ran it before settles it no more."""
    for repeatable in (True, False):
        old, new = _lost(stage, repeatable=repeatable)
        thread_id = new["thread_id"]
        before = stage.log(thread_id)
        if not repeatable:
            with stage.refused(ConflictReason.NOT_REPEATABLE, thread_id):
                stage.bot.retry_call(**new, call_id="call-1")
            continue
        with stage.refused(ConflictReason.RUN_FENCED, thread_id):
            stage.bot.retry_call(**old, call_id="call-1")
        assert stage.bot.retry_call(**new, call_id="call-1").claimed_fence == new["fence"]
        with stage.refused(ConflictReason.RUN_FENCED, thread_id):
            stage.bot.settle_execution(
                thread_id=thread_id, call_id="call-1", claimed_fence=old["fence"], output="late"
            )
        stage.bot.append_events(**new, events=[output(), finish()])
        assert stage.state(thread_id) == "done"
        assert stage.log(thread_id)[: len(before)] == before
        assert stage.types(thread_id)[len(before) :] == [
            "call-retried",
            "tool-output",
            "turn-finish",
        ]


@shows("G-RETRY-03")
def a_gated_call_runs_again_as_it_was_approved(stage: Stage) -> None:
    """A retry is a claim: another input, version or operation is refused."""
    held = stage.running(stale_after=SHORT)
    thread_id = held["thread_id"]
    stage.decide(held, stage.ask(held, repeatable=True))
    stage.claim(held)
    new = stage.take_over(thread_id)

    def retry(operation: str, version: str, amount: float) -> None:
        stage.bot.retry_call(
            **new,
            call_id="call-1",
            operation=operation,
            version=version,
            input={**INPUT, "amount": amount},
        )

    for other in (
        ("refunds/create", "v1", 2.5),
        ("refunds/create", "v2", 1.5),
        ("refunds/delete", "v1", 1.5),
    ):
        with stage.refused(ConflictReason.DIGEST_MISMATCH, thread_id):
            retry(*other)
    retry("refunds/create", "v1", 1.5)
    assert stage.types(thread_id).count("execution-claimed") == 2
    assert stage.state(thread_id) == "executing"


@shows("G-RETRY-07", "G-RETRY-09")
def its_owner_says_once_what_became_of_a_call(stage: Stage) -> None:
    """Nobody else does, no process either; the same again is the first answer."""
    _, new = _lost(stage, repeatable=False)
    thread_id = new["thread_id"]

    def says(ops: Operations) -> tuple[str, bool]:
        told = ops.resolve_unknown(
            thread_id=thread_id, call_id="call-1", happened=True, output={"ok": 1}
        )
        return told.state, told.duplicate

    with pytest.raises(NotFound):
        says(stage.auditor)
    with pytest.raises(PermissionDenied):
        says(stage.acting("alice", USE, RUN, system=True))
    assert says(stage.me) == ("done", False)
    assert says(stage.me) == ("done", True)
    with stage.refused(ConflictReason.CALL_STATE, thread_id):
        stage.me.resolve_unknown(thread_id=thread_id, call_id="call-1", happened=False)
    assert stage.types(thread_id)[-2:] == ["call-closed", "unknown-resolved"]


@shows("G-QUEUE-17", "G-QUEUE-18")
def a_turn_that_nobody_will_finish_is_given_up(stage: Stage) -> None:
    """A live run's only by who knows its fence; its calls are closed, and who waits is next."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.bot.append_events(**held, events=[proposal()])
    stage.me.send_message(thread_id=thread_id, text="And order 8?", when_busy="queue")
    give_up = partial(
        stage.bot.abandon_turn, thread_id=thread_id, reason="the host is gone", turn=1
    )
    with stage.refused(ConflictReason.RUN_IN_PROGRESS, thread_id):
        give_up()
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        give_up(fence=held["fence"] + 1)
    give_up(fence=held["fence"])
    assert stage.types(thread_id)[-4:] == [
        "call-closed",
        "turn-error",
        "user-message",
        "turn-start",
    ]
    assert stage.state(thread_id) == "unknown"
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.append_events(**held, events=[words("late")])
    # Asked again, it does not end the turn of the message that waited.
    with stage.refused(ConflictReason.NO_TURN_OPEN, thread_id):
        give_up()
    assert stage.me.get_run(thread_id=thread_id, fence=held["fence"]).reason == "abandoned"


@shows("G-RUN-08", "G-OPS-31")
def what_nobody_runs_is_listed_fairly(stage: Stage) -> None:
    """The oldest of each tenant comes before the second of any; what is run is not listed."""
    neighbours = stage.acting("alice", USE, tenant=stage.neighbour)
    mine: list[str] = []
    for _ in range(3):
        mine.append(stage.opened())
        if stage.setup.clock is not None:
            stage.setup.clock.forward(1)
    theirs = neighbours.create_thread().id
    neighbours.send_message(thread_id=theirs, text="Hello")

    def listed() -> list[str]:
        found = stage.assistant.list_runnable(limit=1000)
        if len(found) == 1000:
            pytest.skip("a thousand threads wait to be run here, so ours may not be among them")
        return [one.thread_id for one in found if one.tenant in (stage.tenant, stage.neighbour)]

    first, second, *rest = listed()
    assert {first, second} & {theirs} == {theirs}
    assert sorted([first, second, *rest]) == sorted([*mine, theirs])
    for thread_id in mine[:2]:
        stage.take(thread_id)
    assert sorted(listed()) == sorted([mine[2], theirs])
