"""Asking, asking again, and how the answers of several people become one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from sqlalchemy import Engine

from engine_assistant import Conflict
from tests.rig.states import (
    INPUT,
    LONG,
    NO_DIGEST,
    OPERATION,
    SHORT,
    Stage,
    finish,
    proposal,
    ready_request,
)
from tests.rig.tries import attempt, results_of, types_after

C = "c1"
ANN, BEN, CAT = THREE = ("usr_ann", "usr_ben", "usr_cat")


def _asked(engine: Engine, *, waiting: bool = True, required: int = 2) -> Stage:
    stage = Stage(engine).begin().propose(C).ask(C, approvers=THREE, required=required)
    return stage.append(finish("awaiting-approval")) if waiting else stage


def _missing(stage: Stage) -> list[object]:
    return [event["missing"] for event in stage.log() if event["type"] == "approval-resolved"]


# ---------------------------------------------------------------- several people


@pytest.mark.guarantee("G-MACH-14")
def test_an_approval_below_the_threshold_leaves_call_and_turn_waiting(engine: Engine) -> None:
    stage = _asked(engine)
    decision = stage.person(BEN).resolve_approval(
        thread_id=stage.thread_id,
        call_id=C,
        approved=True,
        digest=stage.digest(C, BEN),
        version="v1",
    )
    assert (decision.state.value, decision.missing) == ("awaiting-approval", 1)
    assert (stage.state(C), stage.turn()) == ("awaiting-approval", "awaiting")
    assert stage.says(C) == {ANN: "pending", BEN: "approved", CAT: "pending"}
    assert attempt(stage.acquire(), lambda s: s.claim(C)) == "approval_required"


@pytest.mark.guarantee("G-MACH-14")
def test_the_approval_that_reaches_the_threshold_approves_and_lets_the_turn_go_on(
    engine: Engine,
) -> None:
    stage = _asked(engine).answer(C, by=CAT).answer(C, by=ANN)
    assert (stage.state(C), stage.turn(), _missing(stage)) == ("approved", "open", [1, 0])
    assert stage.says(C) == {ANN: "approved", BEN: "superseded", CAT: "approved"}
    stage.acquire().claim(C)
    assert stage.state(C) == "executing"


@pytest.mark.guarantee("G-MACH-15")
@pytest.mark.parametrize("before", [0, 1])
def test_one_denial_denies_whoever_approved_before(engine: Engine, before: int) -> None:
    stage = _asked(engine)
    for person in THREE[:before]:
        stage.answer(C, by=person)
    stage.answer(C, approved=False, by=CAT)
    assert (stage.state(C), stage.turn()) == ("denied", "open")
    ann = "approved" if before else "superseded"
    assert stage.says(C) == {ANN: ann, BEN: "superseded", CAT: "denied"}
    assert len(results_of(stage, C)) == 1


@pytest.mark.guarantee("G-MACH-15")
def test_a_veto_after_the_threshold_comes_too_late(engine: Engine) -> None:
    stage = _asked(engine).answer(C, by=ANN).answer(C, by=BEN)
    for person in THREE:
        for approved in (True, False):
            refused = attempt(
                stage,
                lambda s, p=person, a=approved: s.answer(C, approved=a, by=p),  # type: ignore[misc]
            )
            assert refused == "already_resolved", person
    with pytest.raises(Conflict) as caught:
        stage.answer(C, approved=False, by=CAT)
    settled = stage.log()[-1]
    assert caught.value.facts == {
        "call_id": C,
        "state": "approved",
        "decision": "approved",
        "approver": BEN,
        "at": settled["at"],
        "seq": settled["seq"],
    }


def test_nobody_counts_twice_and_nobody_takes_an_answer_back(engine: Engine) -> None:
    stage = _asked(engine).answer(C, by=ANN)
    for approved in (True, False):
        refused = attempt(stage, lambda s, a=approved: s.answer(C, approved=a, by=ANN))  # type: ignore[misc]
        assert refused == "already_resolved"
    assert stage.state(C) == "awaiting-approval"


def test_every_number_of_required_approvals_is_counted_to_the_end(engine: Engine) -> None:
    for required in (1, 2, 3):
        stage = _asked(engine, required=required)
        for count, person in enumerate(THREE[:required], start=1):
            assert stage.state(C) == "awaiting-approval"
            stage.answer(C, by=person)
            assert _missing(stage)[-1] == required - count
        assert stage.state(C) == "approved"


def test_only_the_people_asked_decide_and_nobody_else_learns_that_there_is_a_call(
    engine: Engine,
) -> None:
    stage = _asked(engine)
    for stranger in ("usr_alice", "usr_dan"):
        assert attempt(stage, lambda s, p=stranger: s.answer(C, by=p)) == "not_found"  # type: ignore[misc]
    # Each person has a digest of their own: with another's it is another approval.
    stage.asked[C] = stage.asked[C].model_copy(
        update={
            "requests": tuple(
                slot.model_copy(update={"digest": stage.digest(C, ANN)})
                for slot in stage.asked[C].requests
            )
        }
    )
    for approved in (True, False):
        refused = attempt(stage, lambda s, a=approved: s.answer(C, approved=a, by=BEN))  # type: ignore[misc]
        assert refused == "digest_mismatch"


@pytest.mark.parametrize(
    ("ending", "left"),
    [("interrupt", "cancelled"), ("supersede", "superseded"), ("lapse", "expired")],
)
def test_when_the_call_ends_what_was_given_stays_and_what_was_pending_follows(
    engine: Engine, ending: str, left: str
) -> None:
    stage = _asked(engine).answer(C, by=BEN)
    if ending == "interrupt":
        stage.owner.interrupt_turn(thread_id=stage.thread_id)
    elif ending == "supersede":
        stage.owner.send_message(thread_id=stage.thread_id, text="no", supersede_approvals=True)
    else:
        stage.hands.advance(LONG)
        stage.acquire()
    assert stage.state(C) == left
    assert stage.says(C) == {ANN: left, BEN: "approved", CAT: left}


# ---------------------------------------------------------------- asking again


@pytest.mark.guarantee("G-MACH-16")
def test_a_waiting_turn_admits_a_request_asked_again_and_the_count_starts_again(
    engine: Engine,
) -> None:
    stage = _asked(engine).answer(C, by=ANN).acquire()
    old = stage.asked[C]
    stage.ask(C, approvers=(BEN, CAT), required=2, reissue=True)
    assert (stage.state(C), stage.turn()) == ("awaiting-approval", "awaiting")
    assert stage.says(C) == {BEN: "pending", CAT: "pending"}
    states = {
        (row["request_seq"], row["approver_id"]): row["state"] for row in stage.rows()["approvals"]
    }
    assert {states[old.seq, person] for person in THREE} == {"superseded"}
    new, stage.asked[C] = stage.asked[C], old
    assert attempt(stage, lambda s: s.answer(C, by=BEN)) == "digest_mismatch"
    assert attempt(stage, lambda s: s.answer(C, by=ANN)) == "not_found"
    stage.asked[C] = new
    stage.answer(C, by=BEN).answer(C, by=CAT)
    assert (stage.state(C), _missing(stage)) == ("approved", [1, 1, 0])


@pytest.mark.guarantee("G-MACH-16")
def test_an_approved_call_that_is_asked_again_must_be_approved_again(engine: Engine) -> None:
    stage = _asked(engine, waiting=False).answer(C, by=ANN).answer(C, by=BEN)
    old = stage.asked[C].seq
    stage.ask(C, approvers=THREE, required=1, reissue=True)
    assert attempt(stage, lambda s: s.claim(C)) == "approval_required"
    rows = [row for row in stage.rows()["approvals"] if row["request_seq"] == old]
    assert [row["state"] for row in rows] == ["superseded"] * 3
    stage.answer(C, by=CAT).claim(C)
    assert stage.state(C) == "executing"


def test_a_waiting_turn_admits_no_other_request(engine: Engine) -> None:
    stage = Stage(engine).begin().propose(C).ask(C).propose("c2")
    stage.append(finish("awaiting-approval")).acquire()
    assert stage.state("c2") == "unknown"
    refused = {
        "first": attempt(stage, lambda s: s.ask(C)),
        "ready": attempt(stage, lambda s: s.append(ready_request(s, C))),
        "ended": attempt(stage, lambda s: s.ask("c2", reissue=True)),
    }
    assert refused == dict.fromkeys(refused, "no_turn_open")


def test_several_requests_in_one_batch_leave_the_last_one(engine: Engine) -> None:
    stage = Stage(engine).begin()
    stage.append(
        proposal(C),
        ready_request(stage, C),
        ready_request(stage, C, approvers=(ANN,), nonce="n2", reissue=True),
        ready_request(stage, C, approvers=(BEN,), nonce="n3", reissue=True),
        finish("awaiting-approval"),
    )
    assert (stage.state(C), stage.turn()) == ("awaiting-approval", "awaiting")
    states = {row["approver_id"]: row["state"] for row in stage.rows()["approvals"]}
    assert states == {"usr_alice": "superseded", ANN: "superseded", BEN: "pending"}


# ---------------------------------------------------------------- a ready request


@pytest.mark.guarantee("G-MACH-17")
def test_the_same_request_again_is_recorded_and_changes_no_row(engine: Engine) -> None:
    stage = Stage(engine).begin().propose(C)
    request = ready_request(stage, C, approvers=(BEN, ANN), expires_in=SHORT)
    stage.append(request)
    before, seq = stage.rows(), stage.last_seq()
    backwards = {**request, "requests": list(reversed(request["requests"]))}  # type: ignore[call-overload]
    stage.lapse().append(request).append(backwards)  # nor does it matter that it has lapsed
    after = stage.rows()
    assert types_after(stage, seq) == ["approval-request"] * 2
    for table in ("tool_calls", "approvals", "outbox", "runs", "inputs"):
        assert after[table] == before[table], table


def test_a_ready_request_equals_one_that_the_engine_makes(engine: Engine) -> None:
    stage = Stage(engine).begin().propose(C)
    request = ready_request(stage, C, nonce="0123456789abcdef0123456789abcdef")
    stage.append(request)
    ready, made = stage.log()[-1], stage.ask(C, reissue=True).log()[-1]
    minted = {"seq", "at", "requests", "reissue"}
    assert {k: v for k, v in ready.items() if k not in minted} == {
        k: v for k, v in made.items() if k not in minted
    }


WRONG: Mapping[str, tuple[Mapping[str, object], str]] = {
    # one value changed after the digest was made -> what is said to differ
    "step": ({"step": "s2"}, "step"),
    "input": ({"input": {**INPUT, "amount": 1.25}}, "input"),
    "the last digit of an id": ({"input": {**INPUT, "order": 1234567890123456788}}, "input"),
    "operation": ({"operation": "refunds/create-two"}, "digest"),
    "version": ({"version": "v2"}, "digest"),
    "expires_at": ({"expires_at": "2030-01-02T00:00:00.000Z"}, "digest"),
    "digest": ({"requests": [{"approver": "usr_alice", "nonce": "n1", "digest": NO_DIGEST}]},
               "digest"),
}  # fmt: skip
SLOTS = {"approver": ANN, "nonce": "n2"}


@pytest.mark.guarantee("G-MACH-18")
def test_a_request_of_which_one_value_is_wrong_is_refused_and_named(engine: Engine) -> None:
    stage = Stage(engine).begin().propose(C)
    right = ready_request(stage, C)
    slot = right["requests"][0]  # type: ignore[index]
    wrong = {name: ({**right, **change}, differs) for name, (change, differs) in WRONG.items()}
    for name, value in SLOTS.items():
        wrong[name] = ({**right, "requests": [{**slot, name: value}]}, "digest")
    for name, (request, differs) in wrong.items():
        refused = attempt(stage, lambda s, r=request: s.append(r))  # type: ignore[misc]
        assert refused == "digest_mismatch", name
        with pytest.raises(Conflict) as caught:
            stage.append(request)
        assert caught.value.facts["differs"] == differs, name
    stage.append(right)
    assert stage.state(C) == "awaiting-approval"


def test_a_request_made_for_another_thread_or_call_is_refused(engine: Engine) -> None:
    other = Stage(engine).begin().propose(C)
    stage = Stage(engine).begin().propose(C).propose("c2")
    elsewhere = ready_request(other, C)
    refused = [
        attempt(stage, lambda s: s.append(elsewhere)),
        attempt(stage, lambda s: s.append({**ready_request(s, C), "call_id": "c2"})),
    ]
    assert refused == ["digest_mismatch"] * 2
    assert attempt(stage, lambda s: s.append({**ready_request(s, C), "tool": "x"})) == "call_state"


def test_a_request_that_is_wrong_is_told_so_before_its_call_and_its_time_are_looked_at(
    engine: Engine,
) -> None:
    stage = Stage(engine).begin().propose(C)
    late = ready_request(stage, C, expires_in=0)
    assert attempt(stage, lambda s: s.append(late)) == "approval_expired"
    wrong = {**late, "version": "v2"}
    assert attempt(stage, lambda s: s.append(wrong)) == "digest_mismatch"
    stage.append({"type": "tool-output", "call_id": C, "output": None})
    assert attempt(stage, lambda s: s.append(wrong)) == "digest_mismatch"
    assert attempt(stage, lambda s: s.append(late)) == "call_state"


@pytest.mark.parametrize(
    "change",
    [
        {"required": 2},
        {"requests": []},
        {"required": 0},
    ],
)
def test_a_request_that_nobody_could_meet_is_invalid(
    engine: Engine, change: Mapping[str, object]
) -> None:
    stage = Stage(engine).begin().propose(C)
    request = {**ready_request(stage, C), **change}
    assert attempt(stage, lambda s: s.append(request)) == "validation_failed"
    twice = ready_request(stage, C, approvers=(ANN, ANN))
    assert attempt(stage, lambda s: s.append(twice)) == "validation_failed"
    crowd = tuple(f"usr_{n}" for n in range(21))
    assert attempt(stage, lambda s: s.append(ready_request(s, C, approvers=crowd))) == (
        "validation_failed"
    )
    stage.append(ready_request(stage, C, approvers=crowd[:20], required=20))
    assert len(stage.says(C)) == 20


def test_an_approval_and_a_claim_of_something_else_say_what_differs(engine: Engine) -> None:
    stage = Stage(engine).begin().propose(C).ask(C)
    with pytest.raises(Conflict) as caught:
        stage.owner.resolve_approval(
            thread_id=stage.thread_id,
            call_id=C,
            approved=True,
            digest=stage.digest(C),
            version="v2",
        )
    assert (caught.value.reason.value, caught.value.facts["differs"]) == (
        "digest_mismatch",
        "version",
    )
    stage.answer(C)
    for differs, served in {
        "operation": ("other", "v1", INPUT),
        "version": (OPERATION, "v2", INPUT),
        "input": (OPERATION, "v1", {**INPUT, "order": 1234567890123456788}),
    }.items():
        operation, version, value = served
        rows = stage.rows()
        with pytest.raises(Conflict) as caught:
            stage.bot.claim_execution(
                **stage.held, call_id=C, operation=operation, version=version, input=dict(value)
            )
        assert (caught.value.reason.value, caught.value.facts["differs"]) == (
            "digest_mismatch",
            differs,
        )
        assert stage.rows() == rows
