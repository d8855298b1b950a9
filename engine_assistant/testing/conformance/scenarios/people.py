"""Tenants do not meet, and nobody does what they may not."""

from collections.abc import Callable

import pytest

from engine_assistant import (
    AUDIT,
    RUN,
    USE,
    AssistantError,
    NotFound,
    Operations,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Held, Stage, words


def _on(held: Held) -> dict[str, Callable[[Operations], object]]:
    """Return what can be asked about a thread, each with values that are right for it."""
    thread_id = held["thread_id"]
    of_call = {"thread_id": thread_id, "call_id": "call-1"}
    return {
        "get": lambda ops: ops.get_thread(thread_id=thread_id),
        "read": lambda ops: ops.read_events(thread_id=thread_id),
        "read bytes": lambda ops: ops.read_events_json(thread_id=thread_id),
        "calls": lambda ops: ops.list_calls(thread_id=thread_id),
        "call": lambda ops: ops.get_call(**of_call),
        "send": lambda ops: ops.send_message(thread_id=thread_id, text="Hello"),
        "stop": lambda ops: ops.interrupt_turn(thread_id=thread_id),
        "close": lambda ops: ops.close_thread(thread_id=thread_id),
        "upload": lambda ops: ops.authorize_file_upload(thread_id=thread_id),
        "decide": lambda ops: ops.resolve_approval(**of_call, approved=False, digest="0" * 64),
        "resolve": lambda ops: ops.resolve_unknown(**of_call, happened=False),
        "inputs": lambda ops: ops.list_inputs(thread_id=thread_id),
        "edit": lambda ops: ops.edit_input(thread_id=thread_id, input_id="i", text="Hello"),
        "take back": lambda ops: ops.cancel_input(thread_id=thread_id, input_id="i"),
        "runs": lambda ops: ops.list_runs(thread_id=thread_id),
        "run": lambda ops: ops.get_run(thread_id=thread_id, fence=held["fence"]),
        "history": lambda ops: ops.history(thread_id=thread_id),
        "summaries": lambda ops: ops.list_compactions(thread_id=thread_id),
    }


def _as_run(held: Held) -> dict[str, Callable[[Operations], object]]:
    """Return what only a run can do."""
    thread_id = held["thread_id"]
    return {
        "acquire": lambda ops: ops.acquire_run(thread_id=thread_id, run_id="run-b"),
        "append": lambda ops: ops.append_events(**held, events=[words("a")]),
        "beat": lambda ops: ops.beat_run(**held),
        "take in": lambda ops: ops.take_inputs(**held),
        "keep": lambda ops: ops.put_context(**held, state="opaque"),
        "have back": lambda ops: ops.get_context(**held),
        "retry": lambda ops: ops.retry_call(**held, call_id="call-1"),
        "abandon": lambda ops: ops.abandon_turn(thread_id=thread_id, reason="gone"),
        "summarise": lambda ops: ops.compact(
            thread_id=thread_id, from_seq=1, to_seq=1, summary="short", expected_head=1
        ),
        "release": lambda ops: ops.release_run(**held),
    }


def _refusals(
    acts: dict[str, Callable[[Operations], object]], ops: Operations
) -> dict[str, dict[str, object] | None]:
    """Return how each is refused, as plain data; None if it is not."""
    told: dict[str, dict[str, object] | None] = {}
    for name, act in acts.items():
        try:
            act(ops)
        except AssistantError as error:
            told[name] = error.to_dict()
        else:
            told[name] = None
    return told


@shows("G-PERM-11", "G-PERM-12")
def another_tenants_threads_are_not_found(stage: Stage) -> None:
    """Somebody of the same name elsewhere sees what there is for ids that were made up: nothing."""
    held = stage.running()
    stage.ask(held)
    before = stage.log(held["thread_id"])
    missing = Held(thread_id="no-such-thread", run_id=held["run_id"], fence=held["fence"])
    for ops, acts in (
        (stage.stranger, _on),
        (stage.acting("bot", RUN, system=True, tenant=stage.neighbour), _as_run),
    ):
        told = _refusals(acts(held), ops)
        assert told == _refusals(acts(missing), ops)
        assert {one["code"] if one else None for one in told.values()} == {"not_found"}
    assert stage.stranger.list_threads().items == ()
    assert stage.stranger.list_approvals().items == ()
    assert stage.log(held["thread_id"]) == before


@shows("G-PERM-12", "G-PERM-05")
def another_persons_threads_are_not_found(stage: Stage) -> None:
    """Within a tenant, too: what one may not see has the answer of what is not there."""
    held = stage.running()
    stage.ask(held)
    missing = Held(thread_id="no-such-thread", run_id=held["run_id"], fence=held["fence"])
    told = _refusals(_on(held), stage.bob)
    assert told == _refusals(_on(missing), stage.bob)
    assert {one["code"] if one else None for one in told.values()} == {"not_found"}
    assert stage.bob.list_threads().items == ()
    with pytest.raises(PermissionDenied):
        stage.bob.list_threads(subject="alice")


@shows("G-PERM-04")
def an_auditor_reads_and_writes_nothing(stage: Stage) -> None:
    """Everything of the tenant can be read with `audit`, and nothing changed."""
    held = stage.running()
    stage.ask(held)
    before = stage.log(held["thread_id"])
    told = _refusals(_on(held), stage.auditor)
    reading = {"get", "read", "read bytes", "calls", "call"}
    reading |= {"inputs", "runs", "run", "history", "summaries"}
    assert {name for name, refusal in told.items() if refusal is None} == reading
    assert [thread.id for thread in stage.auditor.list_threads(subject="alice").items] == [
        held["thread_id"]
    ]
    assert stage.log(held["thread_id"]) == before


@shows("G-PERM-01", "G-PERM-02", "G-PERM-03")
def without_its_permission_nothing_is_done(stage: Stage) -> None:
    """A person writes nothing of the assistant's side; without `use` there is nothing at all."""
    held = stage.running()
    before = stage.log(held["thread_id"])
    person = stage.acting("alice", USE, AUDIT)
    for ops, acts in (
        (person, _as_run(held)),
        (stage.acting("alice"), _on(held)),
        (stage.acting("alice", AUDIT), _on(held)),
    ):
        for act in acts.values():
            with pytest.raises(PermissionDenied):
                act(ops)
    # A binding of a set is refused when it is made, one of a function when it is used.
    with pytest.raises((ValidationFailed, PermissionDenied)):
        stage.acting("alice", USE, RUN).acquire_run(thread_id=held["thread_id"], run_id="run-b")
    assert stage.log(held["thread_id"]) == before


@shows("G-OPS-38", "G-OPS-39")
def whoever_is_asked_sees_the_card_and_no_more(stage: Stage) -> None:
    """An approver need not own the thread: they see the call, and still not the conversation."""
    held = stage.running()
    stage.ask(held, "bob")
    (card,) = stage.bob.list_approvals().items
    assert card.thread_id == held["thread_id"]
    assert stage.bob.get_call(thread_id=card.thread_id, call_id=card.call_id).tool == "refund"
    with pytest.raises(NotFound):
        stage.bob.read_events(thread_id=card.thread_id)
    stage.decide(held, card.digest, by=stage.bob)
    assert stage.state(held["thread_id"]) == "approved"
