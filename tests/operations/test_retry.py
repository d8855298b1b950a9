"""Calls that nobody can tell of: tried again where they may be, or resolved by their owner."""

from typing import cast

import pytest

from engine_assistant import (
    RUN,
    USE,
    Caller,
    ConflictReason,
    NotFound,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import Settled
from tests.rig.stage import (
    ALICE,
    ASKED,
    AUDITOR,
    BOB,
    INPUT,
    ROBOT,
    TWIN,
    Play,
    Stage,
    Values,
    delta,
    dump,
    propose,
    refused,
)

SERVED: Values = {**ASKED, "input": INPUT}


def _retry(stage: Stage, run: Values, call_id: str = "lost", **given: object) -> dict[str, object]:
    return stage.bot.call("assistant/retry-call", {**run, "call_id": call_id, **given})


def _settle(stage: Stage, run: Values, fence: int, output: JsonValue = "late") -> Settled:
    return stage.bot.settle_execution(
        thread_id=str(run["thread_id"]), call_id="lost", claimed_fence=fence, output=output
    )


def _resolve(stage: Stage, run: Values, who: Caller = ALICE, **given: object) -> dict[str, object]:
    values = {"thread_id": run["thread_id"], "call_id": "lost", **given}
    return stage.assistant.acting_as(who).call("assistant/resolve-unknown", values)


def _lose_ungated(stage: Stage, **given: object) -> Values:
    """Lose a call that nobody had to approve; answer the lease after that one."""
    run = stage.open_turn("r0")
    stage.propose(run, "lost", **{"repeatable": True, **given})
    stage.bot.release_run(**run)
    return stage.take(str(run["thread_id"]))


def _last(stage: Stage, run: Values) -> dict[str, object]:
    return stage.me.call("assistant/read-events", {"thread_id": run["thread_id"], "last": 1})[
        "events"
    ][0]


OUTPUT = {"type": "tool-output", "call_id": "lost", "output": {"found": 1}}


# ---------------------------------------------------------------- tried again


@pytest.mark.guarantee("G-RETRY-01", "G-RETRY-02")
def test_an_ungated_call_runs_again_under_the_new_fence(stage: Stage) -> None:
    run = _lose_ungated(stage)
    prefix = stage.types(run)
    assert _retry(stage, run) == {"call_id": "lost", "claimed_fence": 2, "duplicate": False}
    assert stage.types(run) == [*prefix, "call-retried"]
    told = _last(stage, run)
    assert (told["run_id"], told["fence"]) == ("r1", 2)
    call = stage.me.get_call(thread_id=str(run["thread_id"]), call_id="lost")
    assert (call.state, call.claimed_fence, call.result) == ("running", 2, None)
    stage.append(run, OUTPUT, {"type": "turn-finish", "reason": "done"})
    assert stage.state_of(run, "lost") == "done"
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-01", "G-RETRY-03")
def test_a_gated_call_is_claimed_again_under_the_new_fence(stage: Stage) -> None:
    run = stage.lose()
    prefix = stage.types(run)
    _retry(stage, run, **SERVED, attempt=4)
    assert stage.types(run) == [*prefix, "execution-claimed"]
    told = _last(stage, run)
    assert (told["run_id"], told["fence"], told["attempt"]) == ("r1", 2, 4)
    call = stage.me.get_call(thread_id=str(run["thread_id"]), call_id="lost")
    assert (call.state, call.claimed_fence, call.claimed_attempt) == ("executing", 2, 4)
    assert [say.state for say in call.approvals] == ["approved"]
    stage.append(run, OUTPUT)
    assert stage.state_of(run, "lost") == "done"
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-01")
@pytest.mark.parametrize("gated", [True, False])
def test_what_was_lost_again_may_be_tried_again(stage: Stage, *, gated: bool) -> None:
    run = stage.lose() if gated else _lose_ungated(stage)
    served = SERVED if gated else {}
    for fence in range(2, 6):
        _retry(stage, run, **served)
        assert (
            stage.me.get_call(thread_id=str(run["thread_id"]), call_id="lost").claimed_fence
            == fence
        )
        run = stage.take(str(run["thread_id"]))
        assert stage.state_of(run, "lost") == "unknown"
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-01")
@pytest.mark.parametrize("gated", [True, False])
def test_a_call_that_nobody_called_repeatable_never_runs_again(
    stage: Stage, *, gated: bool
) -> None:
    run = stage.lose(repeatable=False) if gated else _lose_ungated(stage, repeatable=False)
    before = dump(stage.engine)
    with refused(ConflictReason.NOT_REPEATABLE, call_id="lost", state="unknown"):
        _retry(stage, run, **(SERVED if gated else {}))
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-RETRY-01")
def test_the_newest_proposal_says_whether_it_is_repeatable(stage: Stage) -> None:
    run = stage.open_turn("r0")
    stage.append(run, propose("lost", repeatable=True), propose("lost"), propose("other"))
    stage.append(run, propose("other", repeatable=True))
    stage.bot.release_run(**run)
    taken = stage.take(str(run["thread_id"]))
    with refused(ConflictReason.NOT_REPEATABLE):
        _retry(stage, taken)
    _retry(stage, taken, "other")


@pytest.mark.guarantee("G-RETRY-03")
def test_a_gated_retry_is_checked_like_a_claim(stage: Stage) -> None:
    run = stage.lose()
    before = dump(stage.engine)
    for differs, wrong in (
        ("operation", {"operation": "refunds/delete"}),
        ("version", {"version": "v2"}),
        ("input", {"input": {**INPUT, "order": 1234567890123456788}}),
        ("input", {"input": None}),
    ):
        with refused(ConflictReason.DIGEST_MISMATCH, call_id="lost", differs=differs):
            _retry(stage, run, **{**SERVED, **wrong})
    # Key order and the spelling of a number do not make another input.
    stage.clock.forward(0.001)
    assert dump(stage.engine) == before
    _retry(stage, run, **{**SERVED, "input": dict(reversed(INPUT.items()))})


@pytest.mark.guarantee("G-RETRY-03")
def test_an_approval_that_ran_out_is_good_for_no_retry(stage: Stage) -> None:
    run = stage.lose()
    stage.clock.forward(599.999)
    run = stage.take(str(run["thread_id"]))
    _retry(stage, run, **SERVED)
    run = stage.take(str(run["thread_id"]))
    stage.clock.forward(0.001)
    before = dump(stage.engine)
    with refused(ConflictReason.APPROVAL_EXPIRED, call_id="lost", state="unknown"):
        _retry(stage, run, **SERVED)
    assert dump(stage.engine) == before
    # Then only its result, or a person, says what became of it.
    with refused(ConflictReason.CALL_STATE):
        stage.ask(run, "lost", reissue=True)
    assert _resolve(stage, run, happened=False)["state"] == "cancelled"


@pytest.mark.guarantee("G-RETRY-03")
def test_what_is_about_to_run_is_given_of_a_gated_call_and_of_no_other(stage: Stage) -> None:
    gated, ungated = stage.lose(), _lose_ungated(stage)
    before = dump(stage.engine)
    for run, given in ((gated, {}), (gated, {"attempt": 1}), (ungated, SERVED)):
        with pytest.raises(ValidationFailed):
            _retry(stage, run, **given)
    for lacks in SERVED:
        some = {key: SERVED[key] for key in SERVED if key != lacks}
        for run in (gated, ungated):
            with pytest.raises(ValidationFailed):
                _retry(stage, run, **some)
    assert dump(stage.engine) == before
    # An input of null is an input.
    run = stage.lose("null", input=None)
    _retry(stage, run, "null", **ASKED, input=None)


@pytest.mark.guarantee("G-RETRY-04")
@pytest.mark.parametrize("gated", [True, False])
def test_whoever_ran_it_before_settles_it_no_more(stage: Stage, *, gated: bool) -> None:
    run = stage.lose() if gated else _lose_ungated(stage)
    _retry(stage, run, **(SERVED if gated else {}))
    before = dump(stage.engine)
    with refused(ConflictReason.RUN_FENCED):
        _settle(stage, run, 1)
    assert dump(stage.engine) == before
    run = stage.take(str(run["thread_id"]))
    with refused(ConflictReason.RUN_FENCED):
        _settle(stage, run, 1)
    assert _settle(stage, run, 2).state == "done"
    assert _settle(stage, run, 2).duplicate
    with refused(ConflictReason.CALL_STATE):
        _retry(stage, run, **(SERVED if gated else {}))


@pytest.mark.guarantee("G-RETRY-05")
def test_only_under_the_lease_of_an_open_turn(stage: Stage) -> None:
    run = stage.lose()
    at = {"thread_id": run["thread_id"]}
    before = dump(stage.engine)
    for wrong in ({**run, "fence": 1}, {**run, "fence": 3}, {**run, "run_id": "r0", "fence": 1}):
        with refused(ConflictReason.RUN_FENCED):
            _retry(stage, wrong, **SERVED)
    with pytest.raises(NotFound):
        _retry(stage, run, "no-such-call", **SERVED)
    other = stage.assistant.acting_as(TWIN["run"])
    with pytest.raises(NotFound):
        other.call("assistant/retry-call", {**run, "call_id": "lost", **SERVED})
    assert dump(stage.engine) == before
    # A waiting turn admits no run's event but a request asked again.
    stage.propose(run, "c")
    stage.ask(run, "c", expires_in=60)
    stage.rest(run, "awaiting-approval")
    with refused(ConflictReason.RUN_FENCED):
        _retry(stage, run, **SERVED)
    held = stage.take(str(run["thread_id"]))
    with refused(ConflictReason.NO_TURN_OPEN):
        _retry(stage, held, **SERVED)
    stage.me.interrupt_turn(**at)
    with refused(ConflictReason.RUN_FENCED):
        _retry(stage, held, **SERVED)
    # A turn later it is still unknown, and may still run again.
    stage.me.send_message(**at, text="Did it work?")
    later = stage.take(str(run["thread_id"]))
    _retry(stage, later, **SERVED)
    stage.append(later, OUTPUT, {"type": "turn-finish", "reason": "done"})
    assert list(stage.assistant.doctor()) == []
    stage.me.close_thread(**at)
    with refused(ConflictReason.THREAD_CLOSED):
        _retry(stage, later, **SERVED)


@pytest.mark.guarantee("G-RETRY-01", "G-RETRY-06")
def test_the_attempt_of_a_claim_is_no_attempt_of_a_retry(stage: Stage) -> None:
    run = stage.open_turn()
    stage.propose(run, "lost")
    stage.approve(run, "lost", stage.ask(run, "lost")["usr_alice"])
    stage.claim(run, "lost", attempt=1)
    before = dump(stage.engine)
    with refused(ConflictReason.CALL_STATE):
        _retry(stage, run, **SERVED, attempt=1)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-RETRY-06")
@pytest.mark.parametrize("gated", [True, False])
def test_the_same_attempt_given_again_answers_while_the_right_is_held(
    stage: Stage, *, gated: bool
) -> None:
    run = stage.lose() if gated else _lose_ungated(stage)
    served = SERVED if gated else {}
    first = _retry(stage, run, **served, attempt=7)
    before = dump(stage.engine)
    assert _retry(stage, run, **served, attempt=7) == {**first, "duplicate": True}
    for other in ({}, {"attempt": 8}):
        with refused(ConflictReason.CALL_STATE):
            _retry(stage, run, **served, **other)
    if gated:
        with refused(ConflictReason.KEY_REUSED):
            _retry(stage, run, **{**served, "version": "v2"}, attempt=7)
    assert dump(stage.engine) == before
    stage.clock.forward(15)
    taken = stage.take(str(run["thread_id"]), "r2")
    with refused(ConflictReason.RUN_FENCED):
        _retry(stage, run, **served, attempt=7)
    # Another run's attempt of the same number is another attempt.
    assert _retry(stage, taken, **served, attempt=7) == {**first, "claimed_fence": 3}
    stage.append(taken, OUTPUT)
    with refused(ConflictReason.CALL_STATE):
        _retry(stage, taken, **served, attempt=7)


@pytest.mark.guarantee("G-RETRY-02")
def test_a_call_that_runs_again_may_be_asked_about_first(stage: Stage) -> None:
    run = _lose_ungated(stage)
    _retry(stage, run, attempt=1)
    stage.approve(run, "lost", stage.ask(run, "lost")["usr_alice"])
    with refused(ConflictReason.CALL_STATE):
        _retry(stage, run, attempt=1)
    stage.claim(run, "lost", attempt=1)
    stage.append(run, OUTPUT)
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-03")
def test_everybody_who_had_to_approve_counts_at_the_retry(stage: Stage) -> None:
    run = stage.open_turn("r0")
    stage.propose(run, "lost", repeatable=True)
    digests = stage.ask(run, "lost", approvers=["usr_alice", "usr_bob"], required=2)
    for who in (ALICE, BOB):
        stage.approve(run, "lost", digests[who.principal], who=who)
    stage.claim(run, "lost")
    taken = stage.take(str(run["thread_id"]), "r0")
    _retry(stage, taken, **SERVED)
    assert stage.state_of(run, "lost") == "executing"


# ---------------------------------------------------------------- resolved


@pytest.mark.guarantee("G-RETRY-07")
@pytest.mark.parametrize("gated", [True, False])
def test_the_owner_says_that_it_happened(stage: Stage, *, gated: bool) -> None:
    run = stage.lose() if gated else _lose_ungated(stage)
    prefix = stage.types(run)
    answer = _resolve(stage, run, happened=True, output={"refunded": 1.5}, reason="the bank says")
    seq = len(prefix) + 1
    assert answer == {"call_id": "lost", "state": "done", "seq": seq, "duplicate": False}
    assert stage.types(run) == [*prefix, "unknown-resolved"]
    told = _last(stage, run)
    assert (told["author"], told["channel"], told["reason"]) == (
        "usr_alice",
        "web",
        "the bank says",
    )
    assert (told["happened"], told["output"]) == (True, {"refunded": 1.5})
    call = stage.me.get_call(thread_id=str(run["thread_id"]), call_id="lost")
    assert (call.state, call.result) == ("done", {"output": {"refunded": 1.5}})
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-07")
@pytest.mark.parametrize("reason", ["the bank says", None])
def test_the_owner_says_that_it_did_not_happen(stage: Stage, reason: str | None) -> None:
    run = stage.lose()
    answer = _resolve(stage, run, happened=False, reason=reason)
    assert answer["state"] == "cancelled"
    call = stage.me.get_call(thread_id=str(run["thread_id"]), call_id="lost")
    said = reason or "It did not happen."
    assert call.result == {"error": {"code": "cancelled", "message": said}}
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-07")
def test_it_is_resolved_once_and_the_same_again_is_the_first_answer(stage: Stage) -> None:
    run = stage.lose()
    _resolve(stage, run, happened=True, output=1)
    before = dump(stage.engine)
    again = _resolve(stage, run, happened=True, output=1)
    assert again == {"call_id": "lost", "state": "done", "seq": None, "duplicate": True}
    for other in ({"happened": True, "output": 2}, {"happened": True}, {"happened": False}):
        with refused(ConflictReason.CALL_STATE, state="done"):
            _resolve(stage, run, **other)
    with refused(ConflictReason.CALL_STATE):
        _settle(stage, run, 1)
    with refused(ConflictReason.CALL_STATE):
        _retry(stage, run, **SERVED)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-RETRY-07")
def test_only_an_unknown_call_is_resolved(play: Play) -> None:
    before = dump(play.stage.engine)
    for call_id in ("running", "waiting", "approved", "executing"):
        with refused(ConflictReason.CALL_STATE, call_id=call_id):
            play.stage.me.resolve_unknown(thread_id=play.thread_id, call_id=call_id, happened=True)
    assert dump(play.stage.engine) == before
    _retry(play.stage, play.lost, **SERVED)
    with refused(ConflictReason.CALL_STATE, state="executing"):
        _resolve(play.stage, play.lost, happened=True)


@pytest.mark.guarantee("G-RETRY-08")
@pytest.mark.parametrize("happened", [True, False])
def test_on_a_closed_thread_the_row_alone_keeps_it(stage: Stage, *, happened: bool) -> None:
    run = stage.lose()
    stage.me.close_thread(thread_id=str(run["thread_id"]))
    log = stage.types(run)
    given = {"happened": happened, "output": 7 if happened else None, "reason": "seen it"}
    answer = _resolve(stage, run, **given)
    assert answer == {"call_id": "lost", "state": "unknown", "seq": None, "duplicate": False}
    assert _resolve(stage, run, **given)["duplicate"]
    with refused(ConflictReason.CALL_STATE):
        _resolve(stage, run, happened=not happened)
    assert stage.types(run) == log
    call = stage.me.get_call(thread_id=str(run["thread_id"]), call_id="lost")
    wanted = {"output": 7} if happened else {"error": {"code": "cancelled", "message": "seen it"}}
    assert (call.state, call.result) == ("unknown", wanted)
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-09")
def test_only_the_threads_owner_resolves(stage: Stage) -> None:
    run = stage.open_turn("r0")
    stage.propose(run, "lost", repeatable=True)
    digests = stage.ask(run, "lost", approvers=["usr_bob"])
    stage.approve(run, "lost", digests["usr_bob"], who=BOB)
    stage.claim(run, "lost")
    stage.take(str(run["thread_id"]), "r0")
    before = dump(stage.engine)
    # Not even the one who approved it, and an auditor only looks.
    for who in (BOB, AUDITOR, TWIN["owner"]):
        with pytest.raises(NotFound):
            _resolve(stage, run, who, happened=True)
    for who in (ROBOT, Caller("acme", "usr_alice", {USE, RUN}, system=True)):
        with pytest.raises(PermissionDenied):
            _resolve(stage, run, who, happened=True)
    with pytest.raises(NotFound):
        stage.me.resolve_unknown(
            thread_id=str(run["thread_id"]), call_id="no-such-call", happened=True
        )
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-RETRY-07")
def test_what_a_person_says_is_bounded_like_a_late_result(stage: Stage) -> None:
    run = stage.lose()
    before = dump(stage.engine)
    for wrong in (
        {"happened": True, "output": "a" * (256 * 1024)},
        {"happened": True, "output": float("nan")},
        {"happened": False, "output": 1},
        {"happened": True, "reason": "a" * 2049},
        {"happened": None},
    ):
        with pytest.raises(ValidationFailed):
            _resolve(stage, run, **wrong)
    assert dump(stage.engine) == before
    assert _resolve(stage, run, happened=True, output="a\0b")["state"] == "done"


@pytest.mark.guarantee("G-RETRY-07")
def test_a_turn_that_rests_or_waits_is_no_obstacle(stage: Stage) -> None:
    idle, waits = stage.lose(), stage.lose()
    stage.rest(idle)
    stage.propose(waits, "c")
    stage.ask(waits, "c")
    stage.rest(waits, "awaiting-approval")
    for run, state in ((idle, "idle"), (waits, "awaiting")):
        assert _resolve(stage, run, happened=True)["state"] == "done"
        thread = stage.me.get_thread(thread_id=str(run["thread_id"]))
        assert thread.turn_state == state
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-RETRY-10")
def test_whatever_is_learnt_later_rewrites_nothing(stage: Stage) -> None:
    def log(run: Values) -> list[object]:
        page = stage.me.call(
            "assistant/read-events", {"thread_id": run["thread_id"], "limit": 1000}
        )
        return cast("list[object]", page["events"])

    for act in (
        lambda run: _retry(stage, run, **SERVED),
        lambda run: _resolve(stage, run, happened=True),
        lambda run: _resolve(stage, run, happened=False),
        lambda run: _settle(stage, run, 1),
    ):
        run = stage.lose()
        stage.append(run, delta("Nobody knows."))
        prefix = log(run)
        act(run)
        after = log(run)
        assert after[: len(prefix)] == prefix
        assert len(after) == len(prefix) + 1
