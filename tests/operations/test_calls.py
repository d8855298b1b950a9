"""Calls and approvals: asked, decided, claimed once, settled late; and who may look at them."""

import pytest

from engine_assistant import AUDIT, USE, Caller, ConflictReason, NotFound
from tests.rig.stage import (
    ALICE,
    AUDITOR,
    BOB,
    CAROL,
    INPUT,
    ROBOT,
    Play,
    Stage,
    Values,
    dump,
    propose,
    refused,
)


@pytest.fixture
def run(stage: Stage) -> Values:
    return stage.open_turn()


@pytest.mark.guarantee("G-OPS-32")
def test_a_gated_call_goes_from_proposal_to_result(stage: Stage, run: Values) -> None:
    thread_id = str(run["thread_id"])
    stage.propose(run, "c", provider_call_id="call_0")
    asked = stage.bot.request_approval(
        **run,
        call_id="c",
        operation="refunds/create",
        version="v1",
        expires_in=60.0,
        approvers=["usr_alice", "usr_bob"],
        required=2,
        why="it costs money",
    )
    assert asked.expires_at == "2030-01-01T00:01:00.000Z"
    assert [one.approver for one in asked.requests] == ["usr_alice", "usr_bob"]
    assert len({one.nonce for one in asked.requests} | {one.digest for one in asked.requests}) == 4
    stage.rest(run, "awaiting-approval")
    answer = {"thread_id": thread_id, "call_id": "c", "approved": True, "version": "v1"}
    first = stage.me.resolve_approval(**answer, digest=asked.requests[0].digest, reason="fine")
    assert (first.state, first.missing) == ("awaiting-approval", 1)
    assert stage.me.get_thread(thread_id=thread_id).turn_state == "awaiting"
    second = stage.bob.resolve_approval(**answer, digest=asked.requests[1].digest)
    assert (second.state, second.missing, second.seq) == ("approved", 0, first.seq + 1)
    assert stage.me.get_thread(thread_id=thread_id).turn_state == "open"
    event = stage.me.read_events(thread_id=thread_id, after=first.seq - 1, limit=1).events[0]
    assert (event.approver, event.channel, event.reason) == ("usr_alice", "web", "fine")
    assert (event.digest, event.missing) == (asked.requests[0].digest, 1)
    fresh = stage.take(thread_id)
    claim = {**fresh, "call_id": "c", "operation": "refunds/create", "version": "v1"}
    claimed = stage.bot.claim_execution(**claim, input=dict(reversed(INPUT.items())), attempt=1)
    assert (claimed.claimed_fence, claimed.duplicate) == (fresh["fence"], False)
    proof = stage.me.read_events(thread_id=thread_id, last=1).events[0]
    assert (proof.type, proof.run_id, proof.fence) == ("execution-claimed", "r1", fresh["fence"])
    stage.append(fresh, {"type": "tool-output", "call_id": "c", "output": None})
    stage.rest(fresh)
    view = stage.me.get_call(thread_id=thread_id, call_id="c")
    assert (view.state, view.result, view.input) == ("done", {"output": None}, INPUT)
    assert (view.claimed_attempt, view.claimed_fence) == (1, fresh["fence"])
    assert (view.tool, view.step, view.provider_call_id) == ("refund", "s1", "call_0")
    assert [(say.approver, say.state) for say in view.approvals] == [
        ("usr_alice", "approved"),
        ("usr_bob", "approved"),
    ]


@pytest.mark.guarantee("G-OPS-33")
def test_a_decision_that_comes_second_is_told_the_first(stage: Stage, run: Values) -> None:
    stage.propose(run, "c")
    digests = stage.ask(run, "c", approvers=["usr_alice", "usr_bob"])
    answer = {"thread_id": run["thread_id"], "call_id": "c", "approved": False}
    said = stage.bob.resolve_approval(**answer, digest=digests["usr_bob"])
    facts = {
        "call_id": "c",
        "state": "denied",
        "decision": "denied",
        "approver": "usr_bob",
        "at": "2030-01-01T00:00:00.000Z",
        "seq": said.seq,
    }
    before = dump(stage.engine)
    with refused(ConflictReason.ALREADY_RESOLVED, **facts):
        stage.approve(run, "c", digests["usr_alice"])
    with refused(ConflictReason.ALREADY_RESOLVED, **facts):
        stage.bob.resolve_approval(**answer, digest=digests["usr_bob"])
    with refused(ConflictReason.APPROVAL_DENIED, call_id="c", state="denied"):
        stage.claim(run, "c")
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-34")
def test_an_approval_is_for_what_was_shown_to_whom_it_was_shown(play: Play) -> None:
    stage, run = play.stage, play.run
    before = dump(stage.engine)
    alice, bob = play.digests["usr_alice"], play.digests["usr_bob"]
    for digest, version, differs in ((bob, "v1", "digest"), (alice, "v2", "version")):
        with refused(ConflictReason.DIGEST_MISMATCH, differs=differs, call_id="waiting"):
            stage.me.resolve_approval(
                thread_id=play.thread_id,
                call_id="waiting",
                approved=True,
                digest=digest,
                version=version,
            )
    with pytest.raises(NotFound):
        stage.approve(run, "waiting", alice, who=CAROL)
    with refused(ConflictReason.DIGEST_MISMATCH, differs="digest"):
        stage.me.resolve_approval(
            thread_id=play.thread_id, call_id="waiting", approved=False, digest="0" * 64
        )
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-35")
def test_approving_ends_at_the_instant_of_expiry_and_denying_does_not(
    stage: Stage, run: Values
) -> None:
    for call_id in ("late", "early", "claimed late"):
        stage.propose(run, call_id)
    digests = {
        call_id: stage.ask(run, call_id, expires_in=seconds)["usr_alice"]
        for call_id, seconds in (("late", 10.0), ("early", 10.001), ("claimed late", 10.001))
    }
    stage.clock.forward(10)
    with refused(ConflictReason.APPROVAL_EXPIRED, expires_at="2030-01-01T00:00:10.000Z"):
        stage.approve(run, "late", digests["late"])
    stage.bot.beat_run(**run)
    denied = stage.me.resolve_approval(
        thread_id=run["thread_id"], call_id="late", approved=False, digest=digests["late"]
    )
    assert denied.state == "denied"
    stage.approve(run, "early", digests["early"])
    stage.approve(run, "claimed late", digests["claimed late"])
    stage.claim(run, "early")
    stage.clock.forward(0.001)
    with refused(ConflictReason.APPROVAL_EXPIRED, call_id="claimed late"):
        stage.claim(run, "claimed late")


@pytest.mark.guarantee("G-OPS-36")
def test_a_claim_is_given_once_and_says_who_has_it(play: Play) -> None:
    stage, run = play.stage, play.run
    claim = {**run, "call_id": "approved", "operation": "refunds/create", "version": "v1"}
    assert not stage.bot.claim_execution(**claim, input=INPUT, attempt=7).duplicate
    before = dump(stage.engine)
    assert stage.bot.claim_execution(**claim, input=INPUT, attempt=7).duplicate
    for attempt in (None, 8):
        with refused(
            ConflictReason.ALREADY_EXECUTED,
            call_id="approved",
            state="executing",
            claimed_fence=run["fence"],
            claimed_run_id="r1",
        ):
            stage.bot.claim_execution(**claim, input=INPUT, attempt=attempt)
    with refused(ConflictReason.KEY_REUSED, call_id="approved"):
        stage.bot.claim_execution(**claim, input={"order": 1}, attempt=7)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-36")
@pytest.mark.parametrize(
    ("call_id", "reason"), [("running", "call_state"), ("waiting", "approval_required")]
)
def test_what_is_not_approved_is_neither_claimed_nor_answered(
    play: Play, call_id: str, reason: str
) -> None:
    before = dump(play.stage.engine)
    with refused(ConflictReason(reason), call_id=call_id):
        play.stage.claim(play.run, call_id)
    output = {"type": "tool-output", "call_id": "approved", "output": 1}
    with refused(ConflictReason.EXECUTION_NOT_CLAIMED, call_id="approved", state="approved"):
        play.stage.append(play.run, output)
    with refused(ConflictReason.APPROVAL_REQUIRED, state="awaiting-approval"):
        play.stage.append(play.run, {**output, "call_id": "waiting"})
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-OPS-37")
@pytest.mark.parametrize("error", [None, {"code": "timeout", "message": "no answer"}])
def test_a_late_result_is_kept_once_by_whoever_has_the_claims_fence(
    play: Play, error: dict[str, str] | None
) -> None:
    stage = play.stage
    result = {"output": {"ok": True}} if error is None else {"error": error}
    stage.clock.forward(15)
    stage.take(play.thread_id, "r2")
    assert stage.state_of(play.run, "executing") == "unknown"
    late = {"thread_id": play.thread_id, "call_id": "executing"}
    with refused(ConflictReason.RUN_FENCED, call_id="executing"):
        stage.bot.settle_execution(**late, claimed_fence=2, **result)
    settled = stage.bot.settle_execution(**late, claimed_fence=1, **result)
    assert (settled.state, settled.duplicate) == ("done" if error is None else "failed", False)
    event = stage.me.read_events(thread_id=play.thread_id, last=1).events[0]
    assert (event.seq, event.late) == (settled.seq, True)
    before = dump(stage.engine)
    assert stage.bot.settle_execution(**late, claimed_fence=1, **result).duplicate
    with refused(ConflictReason.CALL_STATE, call_id="executing"):
        stage.bot.settle_execution(**late, claimed_fence=1, output="another")
    assert dump(stage.engine) == before
    assert stage.me.get_call(**late).result == result


@pytest.mark.guarantee("G-OPS-37")
def test_on_a_closed_thread_a_late_result_goes_to_the_row_alone(play: Play) -> None:
    stage = play.stage
    head = stage.me.close_thread(thread_id=play.thread_id).last_seq
    late = {"thread_id": play.thread_id, "call_id": "executing", "claimed_fence": 1}
    settled = stage.bot.settle_execution(**late, output=7)
    assert (settled.seq, settled.state) == (None, "unknown")
    call = stage.me.get_call(thread_id=play.thread_id, call_id="executing")
    assert (call.state, call.result) == ("unknown", {"output": 7})
    assert stage.me.get_thread(thread_id=play.thread_id).last_seq == head
    assert stage.bot.settle_execution(**late, output=7).duplicate
    with refused(ConflictReason.CALL_STATE):
        stage.bot.settle_execution(**late, output=8)


@pytest.mark.guarantee("G-OPS-38")
def test_calls_are_shown_to_owner_audit_run_and_the_one_who_was_asked(play: Play) -> None:
    stage = play.stage
    which = {"thread_id": play.thread_id, "call_id": "waiting"}
    shown = stage.me.get_call(**which)
    for caller in (AUDITOR, ROBOT, BOB):
        assert stage.assistant.acting_as(caller).get_call(**which) == shown
    for caller, call_id in ((CAROL, "waiting"), (BOB, "approved"), (AUDITOR, "none")):
        with pytest.raises(NotFound):
            stage.assistant.acting_as(caller).get_call(thread_id=play.thread_id, call_id=call_id)
    for caller in (ALICE, AUDITOR, ROBOT):
        listed = stage.assistant.acting_as(caller).list_calls(thread_id=play.thread_id)
        assert [one.call_id for one in listed.items] == [
            "running",
            "waiting",
            "approved",
            "executing",
        ]
    for caller in (BOB, CAROL):
        with pytest.raises(NotFound):
            stage.assistant.acting_as(caller).list_calls(thread_id=play.thread_id)


@pytest.mark.guarantee("G-OPS-38")
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_calls_come_in_the_order_of_their_proposals(stage: Stage, run: Values, limit: int) -> None:
    ids = ["z", "a", "m", "b", "y"]
    stage.append(run, *[propose(call_id) for call_id in ids])
    seen, cursor = [], None
    while True:
        page = stage.me.list_calls(thread_id=run["thread_id"], limit=limit, cursor=cursor)
        seen += [one.call_id for one in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == ids
    stage.append(run, {"type": "tool-output", "call_id": "m", "output": 1})
    done = stage.me.list_calls(thread_id=run["thread_id"], state="done")
    assert [one.call_id for one in done.items] == ["m"]


@pytest.mark.guarantee("G-OPS-39")
def test_the_inbox_is_ones_own_and_a_threads_approvals_are_its_readers(play: Play) -> None:
    stage = play.stage

    def seen(caller: Caller, **given: object) -> list[tuple[str, str]]:
        page = stage.assistant.acting_as(caller).list_approvals(**given)
        return [(one.call_id, one.approver) for one in page.items]

    mine, bobs = ("waiting", "usr_alice"), ("waiting", "usr_bob")
    assert seen(ALICE) == [mine]
    assert seen(BOB) == [bobs]
    assert seen(CAROL) == seen(AUDITOR) == seen(ROBOT) == []
    on = {"thread_id": play.thread_id}
    for caller in (ALICE, AUDITOR, ROBOT):
        assert seen(caller, **on) == [mine, bobs]
    assert seen(BOB, **on) == [bobs]
    with pytest.raises(NotFound):
        seen(CAROL, **on)
    everything = seen(ALICE, **on, state=None)
    assert len(everything) == 4
    assert seen(ALICE, **on, state="approved") == [
        ("approved", "usr_alice"),
        ("executing", "usr_alice"),
    ]
    card = stage.me.list_approvals().items[0]
    assert (card.input, card.operation, card.version) == (INPUT, "refunds/create", "v1")
    assert (card.digest, card.state) == (play.digests["usr_alice"], "pending")
    paged, cursor = [], None
    while True:
        page = stage.me.list_approvals(**on, state=None, limit=1, cursor=cursor)
        paged += [(one.call_id, one.approver) for one in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert paged == everything


@pytest.mark.guarantee("G-OPS-39")
def test_once_asked_one_sees_what_became_of_it(play: Play) -> None:
    """An approver who owns nothing sees their own say after it was decided or replaced."""
    stage = play.stage
    stage.ask(play.run, "waiting", reissue=True)
    bob = stage.assistant.acting_as(BOB)
    assert bob.list_approvals(thread_id=play.thread_id).items == ()
    old = bob.list_approvals(thread_id=play.thread_id, state=None).items
    assert [(one.state, one.call_state) for one in old] == [("superseded", "awaiting-approval")]
    assert old[0].digest == play.digests["usr_bob"]
    with pytest.raises(NotFound):
        stage.approve(play.run, "waiting", play.digests["usr_bob"], who=BOB)
    auditor = Caller("acme", "usr_bob", {USE, AUDIT})
    assert len(stage.assistant.acting_as(auditor).list_approvals(state=None).items) == 1
