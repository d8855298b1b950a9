"""One decision, one claim, and only what was decided runs.

Where the expiry passes during the wait: test_clock.py.
"""

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import (
    RUN,
    USE,
    Assistant,
    Caller,
    Conflict,
    ConflictReason,
    Operations,
    PermissionDenied,
    Raced,
    make_engine,
)
from engine_assistant.model.machines import ApprovalState, CallState
from engine_assistant.model.rows import ApprovalRow
from tests.rig.duels import Arena, Stop
from tests.rig.races import Barrier, Worker, wait_until_blocked
from tests.rig.sides import (
    ALICE,
    ROBOT,
    Scene,
    Side,
    append,
    ask,
    claim,
    decide,
    failure,
    finish,
    output,
    proposal,
)


@pytest.mark.guarantee("G-RACE-21")
@pytest.mark.parametrize("approved", [True, False], ids=["approve-first", "deny-first"])
def test_one_decision_wins_and_the_other_is_told(arena: Arena, stop: Stop, approved: bool) -> None:
    """Approve and deny are pressed in two tabs at once: the loser learns what was decided."""
    scene = arena.waiting()
    ahead, behind = arena.race(
        decide(scene, approved=approved), decide(scene, approved=not approved), stop=stop
    )
    won = CallState.APPROVED if approved else CallState.DENIED
    assert ahead.get().state is won
    facts = behind.refused(ConflictReason.ALREADY_RESOLVED).facts
    assert (facts["decision"], facts["approver"]) == (won.value, ALICE.principal)
    assert facts["seq"] == ahead.get().seq
    assert arena.call(scene).state is won
    assert arena.log(scene.thread_id).count("approval-resolved") == 1


@pytest.mark.guarantee("G-RACE-21")
def test_of_many_decisions_at_once_one_is_recorded(arena: Arena) -> None:
    """Eight threads decide one call at the same moment, half each way: one is recorded."""
    scene = arena.waiting()
    barrier = Barrier(8)
    assistant = Assistant(arena.engine, retry_for=30)

    def press(approved: bool) -> str:
        side = decide(scene, approved=approved)
        barrier.wait()
        try:
            return side.does(assistant.acting_as(ALICE)).state.value
        except Conflict as error:
            return f"{error.reason}: {error.facts['decision']}"

    workers = [Worker(lambda approved=n % 2 == 0: press(approved)) for n in range(8)]
    told = [worker.join() for worker in workers]
    (won,) = set(told) & {"approved", "denied"}
    assert told.count(won) == 1
    assert told.count(f"already_resolved: {won}") == 7
    assert arena.call(scene).state == won
    assert arena.log(scene.thread_id).count("approval-resolved") == 1


@pytest.mark.guarantee("G-RACE-21")
def test_two_claims_give_one_right_to_execute(arena: Arena, stop: Stop) -> None:
    """Two workers of one run claim one approved call at once: one may run the tool."""
    scene = arena.approved()
    ahead, behind = arena.race(claim(scene), claim(scene), stop=stop)
    assert not ahead.get().duplicate
    facts = behind.refused(ConflictReason.ALREADY_EXECUTED).facts
    assert (facts["claimed_run_id"], facts["claimed_fence"]) == (scene.run_id, scene.fence)
    assert arena.log(scene.thread_id).count("execution-claimed") == 1


# ---------------------------------------------------------------- stricter isolation


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def strict(request: pytest.FixtureRequest, postgres_arena: Arena) -> Iterator[sa.Engine]:
    """The engine of a host that asks for more isolation than the record needs."""
    engine = make_engine(postgres_arena.url).execution_options(isolation_level=request.param)
    yield engine
    engine.dispose()


@pytest.mark.guarantee("G-RACE-22")
def test_in_a_stricter_isolation_the_loser_is_told_that_it_raced(
    postgres_arena: Arena, strict: sa.Engine
) -> None:
    """Both decide in one snapshot, where the loser sees no other row: it is `Raced`, once."""
    arena = postgres_arena
    scene = arena.waiting()
    _, behind = arena.race(
        decide(scene), decide(scene, approved=False), stop=Stop.WRITTEN, engine=strict
    )
    assert isinstance(behind.error, Raced)
    assert behind.error.facts["sqlstate"] == "40001"
    assert arena.call(scene).state is CallState.APPROVED


@pytest.mark.guarantee("G-RACE-22")
@pytest.mark.parametrize("door", ["acting_as", "transact"])
def test_a_serialization_failure_is_retried_into_the_right_refusal(
    postgres_arena: Arena, strict: sa.Engine, door: str
) -> None:
    """The same through the doors that retry: the loser is told what was decided."""
    arena = postgres_arena
    scene = arena.waiting()
    side = decide(scene, approved=False)
    tries: list[str] = []
    assistant = Assistant(strict)

    def work(ops: Operations) -> object:
        tries.append(door)
        return side.does(ops)

    def through_the_door() -> object:
        if door == "transact":
            return assistant.transact(ALICE, work)
        return work(assistant.acting_as(ALICE))

    with arena.holding(decide(scene), keep=True) as (ahead, gate):
        waiter = Worker(through_the_door)
        wait_until_blocked(arena.engine)
        gate.release()
        ahead.join()
        error = waiter.error()
    assert isinstance(error, Conflict)
    assert error.reason is ConflictReason.ALREADY_RESOLVED
    # What was given to transact ran twice, whole; acting_as repeats the operation inside.
    assert len(tries) == (2 if door == "transact" else 1)
    assert arena.log(scene.thread_id).count("approval-resolved") == 1


# ---------------------------------------------------------------- results


@pytest.mark.guarantee("G-RACE-23")
def test_no_output_of_a_call_that_was_just_gated(arena: Arena, stop: Stop) -> None:
    """One writer of a run asks for approval while another brings the output: it is required."""
    scene = arena.proposed()
    _, behind = arena.race(ask(scene), append(scene, output()), stop=stop)
    behind.refused(ConflictReason.APPROVAL_REQUIRED)
    assert arena.call(scene).state is CallState.AWAITING
    assert "tool-output" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-23")
def test_nobody_is_asked_about_a_call_that_just_ended(arena: Arena, stop: Stop) -> None:
    """One writer of a run brings the output while another asks for approval: it is done."""
    scene = arena.proposed()
    _, behind = arena.race(append(scene, output()), ask(scene), stop=stop)
    behind.refused(ConflictReason.CALL_STATE)
    assert arena.call(scene).state is CallState.DONE
    assert arena.rows(ApprovalRow, scene.thread_id) == []


@pytest.mark.guarantee("G-RACE-23")
def test_a_call_that_just_failed_is_not_claimed(arena: Arena, stop: Stop) -> None:
    """One writer of a run gives the call up while another claims it: the tool does not run."""
    scene = arena.approved()
    _, behind = arena.race(append(scene, failure()), claim(scene), stop=stop)
    behind.refused(ConflictReason.ALREADY_EXECUTED)
    assert arena.call(scene).state is CallState.FAILED
    assert "execution-claimed" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-23")
def test_an_error_after_the_claim_stands_after_the_claim(arena: Arena, stop: Stop) -> None:
    """One writer of a run claims while another brings an error: the claim stays in the record."""
    scene = arena.approved()
    _, behind = arena.race(claim(scene), append(scene, failure()), stop=stop)
    assert behind.error is None
    call = arena.call(scene)
    assert (call.state, call.claimed_fence) == (CallState.FAILED, scene.fence)
    assert arena.log(scene.thread_id)[-2:] == ["execution-claimed", "tool-error"]


@pytest.mark.guarantee("G-RACE-20", "G-RACE-23")
def test_a_call_that_was_just_asked_about_again_is_not_claimed(arena: Arena, stop: Stop) -> None:
    """One writer of a run asks anew while another claims by the old answer: nothing runs."""
    scene = arena.approved()
    _, behind = arena.race(ask(scene, reissue=True), claim(scene), stop=stop)
    behind.refused(ConflictReason.APPROVAL_REQUIRED)
    assert arena.call(scene).state is CallState.AWAITING
    assert "execution-claimed" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-23")
def test_nobody_is_asked_again_about_a_call_that_was_just_claimed(arena: Arena, stop: Stop) -> None:
    scene = arena.approved()
    _, behind = arena.race(claim(scene), ask(scene, reissue=True), stop=stop)
    behind.refused(ConflictReason.CALL_STATE)
    assert arena.call(scene).state is CallState.EXECUTING
    assert arena.log(scene.thread_id)[-1] == "execution-claimed"


@pytest.mark.guarantee("G-RACE-20", "G-RACE-23")
@pytest.mark.parametrize("first", ["answer", "proposal"])
def test_an_answer_is_for_the_input_that_was_shown_whatever_is_proposed_meanwhile(
    arena: Arena, stop: Stop, first: str
) -> None:
    """The model proposes the call with another input at that moment: the gate does not move."""
    scene = arena.asked()
    sides: list[Side[object]] = [decide(scene), append(scene, proposal("c1", {"order": 2}))]
    ahead, behind = arena.race(*(sides if first == "answer" else sides[::-1]), stop=stop)
    answer, proposed = (ahead, behind) if first == "answer" else (behind, ahead)
    assert answer.error is None
    proposed.refused(ConflictReason.CALL_STATE)
    assert arena.does(claim(scene)).claimed_fence == scene.fence


# ---------------------------------------------------------------- permissions


class Revocable:
    """A host's permissions, asked one key at a time."""

    def __init__(self, *keys: str) -> None:
        self.keys = set(keys)

    def __call__(self, key: str) -> bool:
        return key in self.keys


@pytest.mark.guarantee("G-RACE-24")
@pytest.mark.parametrize("who", ["person", "run"])
def test_a_revocation_during_the_wait_counts_from_the_next_transaction_on(
    arena: Arena, who: str
) -> None:
    """The permission is held when asked and revoked while the operation waits for its lock.

    On Postgres it was asked inside the transaction that waits, and that one goes through. On
    SQLite the transaction was refused and is begun again, so the permission is asked again.
    """
    scene = arena.running()
    held = Revocable(USE, RUN)
    revocable = _caller(who, held)
    side = _write_of(who, scene, revocable)
    before = arena.log(scene.thread_id)
    _, behind = arena.race(
        _other_of(who, scene),
        side,
        stop=Stop.WRITTEN,
        keep=False,
        meanwhile=held.keys.clear,
    )
    if arena.is_postgres:
        assert behind.error is None
        before = arena.log(scene.thread_id)
    else:
        assert isinstance(behind.error, PermissionDenied)
    assert isinstance(arena.attempt(side).error, PermissionDenied)
    assert arena.log(scene.thread_id) == before


@pytest.mark.guarantee("G-RACE-24")
def test_a_retry_asks_for_the_permission_again(postgres_arena: Arena, strict: sa.Engine) -> None:
    """The permission is revoked while a transaction waits that will fail to serialize: denied."""
    arena = postgres_arena
    scene = arena.waiting()
    held = Revocable(USE)
    side = decide(scene, approved=False, caller=_caller("person", held))
    with arena.holding(_other_of("run", scene), keep=True) as (ahead, gate):
        waiter = Worker(lambda: side.does(Assistant(strict).acting_as(side.caller)))
        wait_until_blocked(arena.engine)
        held.keys.clear()
        gate.release()
        ahead.join()
        error = waiter.error()
    assert isinstance(error, PermissionDenied)
    assert arena.call(scene).state is CallState.AWAITING
    (approval,) = arena.rows(ApprovalRow, scene.thread_id)
    assert approval.state is ApprovalState.PENDING


def _caller(who: str, permissions: Callable[[str], bool]) -> Caller:
    twin = ALICE if who == "person" else ROBOT
    return Caller(
        tenant=twin.tenant,
        principal=twin.principal,
        permissions=permissions,
        system=twin.system,
    )


def _write_of(who: str, scene: Scene, caller: Caller) -> Side[object]:
    if who == "run":
        return Side(caller, append(scene, finish("done")).does)
    return Side(caller, lambda ops: ops.interrupt_turn(thread_id=scene.thread_id))


def _other_of(who: str, scene: Scene) -> Side[object]:
    """Something that holds the thread's row, and really changes it."""
    if who == "run":
        return Side(
            ROBOT,
            lambda ops: ops.acquire_run(thread_id=scene.thread_id, run_id="run-b"),
        )
    return Side(ALICE, lambda ops: ops.interrupt_turn(thread_id=scene.thread_id))
