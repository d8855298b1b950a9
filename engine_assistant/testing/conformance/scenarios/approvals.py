"""What was approved is what runs, once, and by nobody else's word."""

import pytest

from engine_assistant import (
    RUN,
    USE,
    ApprovalBinding,
    ConflictReason,
    NotFound,
    PermissionDenied,
    approval_digest,
)
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import INPUT, SHORT, Stage, finish, output


@shows("G-OPS-32", "G-DIG-04")
def a_gated_call_from_the_gate_to_its_output(stage: Stage) -> None:
    """Proposed, asked, rested, approved, taken up again, claimed and answered, all in the log."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held)
    stage.bot.append_events(**held, events=[finish("awaiting-approval")])
    (card,) = stage.me.list_approvals().items
    assert (card.thread_id, card.operation, card.input) == (thread_id, "refunds/create", INPUT)
    # Made again outside of the engine, of what the person was shown.
    shown = ApprovalBinding(
        version=card.version,
        approver=card.approver,
        tenant=stage.tenant,
        thread=card.thread_id,
        step=card.step,
        call=card.call_id,
        operation=card.operation,
        expires_at=card.expires_at,
        nonce=card.nonce,
        input=card.input,
    )
    assert approval_digest(shown) == card.digest == digest
    stage.decide(held, digest)
    assert stage.me.list_approvals().items == ()
    held = stage.take(thread_id, "run-b")
    stage.claim(held)
    stage.bot.append_events(**held, events=[output(), finish()])
    assert stage.types(thread_id)[2:] == [
        "tool-input",
        "approval-request",
        "turn-finish",
        "approval-resolved",
        "execution-claimed",
        "tool-output",
        "turn-finish",
    ]
    call = stage.me.get_call(thread_id=thread_id, call_id="call-1")
    assert (call.state, call.input, call.result) == ("done", INPUT, {"output": {"ok": True}})


@shows("G-OPS-34", "G-DIG-05")
def an_approval_is_for_what_was_shown(stage: Stage) -> None:
    """No other digest or version is approved; no other input, operation or version claimed."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held)
    answer = {"thread_id": thread_id, "call_id": "call-1"}
    for wrong, version in (("0" * 64, "v1"), (digest, "v2")):
        with stage.refused(ConflictReason.DIGEST_MISMATCH, thread_id):
            stage.me.resolve_approval(**answer, approved=True, digest=wrong, version=version)
    stage.decide(held, digest)
    right = {"operation": "refunds/create", "version": "v1", "input": dict(INPUT)}
    for change in (
        {"input": {**INPUT, "order": 1234567890123456788}},
        {"input": {**INPUT, "amount": 1}},
        {"operation": "refunds/delete"},
        {"version": "v2"},
    ):
        with stage.refused(ConflictReason.DIGEST_MISMATCH, thread_id):
            stage.bot.call(
                "assistant/claim-execution", {**held, "call_id": "call-1", **right, **change}
            )
    stage.claim(held)


@shows("G-OPS-36", "G-RACE-23")
def nothing_runs_before_it_was_approved_and_claimed(stage: Stage) -> None:
    """No claim without approvals, no output without a claim, nothing at all after a denial."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held)
    with stage.refused(ConflictReason.APPROVAL_REQUIRED, thread_id):
        stage.claim(held)
    with stage.refused(ConflictReason.APPROVAL_REQUIRED, thread_id):
        stage.bot.append_events(**held, events=[output()])
    stage.decide(held, digest)
    with stage.refused(ConflictReason.EXECUTION_NOT_CLAIMED, thread_id):
        stage.bot.append_events(**held, events=[output()])
    denied = stage.running()
    stage.decide(denied, stage.ask(denied), approved=False)
    for attempt in (
        lambda: stage.claim(denied),
        lambda: stage.bot.append_events(**denied, events=[output()]),
    ):
        with stage.refused(ConflictReason.APPROVAL_DENIED, denied["thread_id"]):
            attempt()


@shows("G-MACH-14", "G-OPS-33", "G-OPS-39", "G-PERM-06")
def only_those_who_were_asked_decide(stage: Stage) -> None:
    """Two of two must approve; nobody else is asked, no process decides, and each decides once."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held, "alice", "bob", required=2)
    (card,) = stage.bob.list_approvals().items
    assert card.approver == "bob"
    with pytest.raises(NotFound):
        stage.decide(held, digest, by=stage.acting("carol", USE))
    with pytest.raises(PermissionDenied):
        stage.decide(held, digest, by=stage.acting("alice", USE, RUN, system=True))
    stage.decide(held, digest)
    assert stage.state(thread_id) == "awaiting-approval"
    with stage.refused(ConflictReason.ALREADY_RESOLVED, thread_id):
        stage.decide(held, digest, approved=False)
    stage.decide(held, card.digest, by=stage.bob)
    assert stage.state(thread_id) == "approved"


@shows("G-OPS-35", "G-RACE-25")
def an_approval_ends_at_its_time(stage: Stage) -> None:
    """When the time is over, the next run finds the call expired, and nobody approves it."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held, expires_in=SHORT)

    def expired() -> bool:
        stage.take(thread_id, held["run_id"])
        return stage.state(thread_id) == "expired"

    stage.wait_until(expired, SHORT)
    with stage.refused(ConflictReason.APPROVAL_EXPIRED, thread_id):
        stage.decide(held, digest)


@shows("G-OPS-37", "G-MACH-06", "G-RACE-13")
def a_claim_whose_run_was_lost_becomes_unknown(stage: Stage) -> None:
    """Nobody runs it again; its result is kept once, late, under the fence of its claim."""
    held = stage.approved(stale_after=SHORT)
    thread_id = held["thread_id"]
    stage.claim(held)
    new = stage.take_over(thread_id)
    assert stage.state(thread_id) == "unknown"
    with stage.refused(ConflictReason.ALREADY_EXECUTED, thread_id):
        stage.claim(new)

    def settle(fence: int) -> tuple[str, bool]:
        told = stage.bot.settle_execution(
            thread_id=thread_id, call_id="call-1", claimed_fence=fence, output=1
        )
        return told.state, told.duplicate

    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        settle(new["fence"])
    assert settle(held["fence"]) == ("done", False)
    assert settle(held["fence"]) == ("done", True)
    assert stage.types(thread_id)[-2:] == ["call-closed", "tool-output"]
