"""Private context: for the runs of one turn, and for nobody else, and not a moment longer."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import sqlalchemy as sa

from engine_assistant import (
    OPERATIONS,
    Assistant,
    AssistantError,
    ConflictReason,
    Limits,
    NotFound,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.model.commands.runs import PutContext
from engine_assistant.store import tables
from engine_assistant.testing.clock import START
from tests.rig.stage import (
    ALICE,
    AUDITOR,
    READING_OPERATIONS,
    ROBOT,
    TWIN,
    Play,
    Stage,
    Values,
    delta,
    dump,
    everything_said,
    refused,
)

SECRET = "hunter2 \U0001f600"
MOST = 1024 * 1024


def _put(stage: Stage, run: Values, state: str = SECRET) -> int:
    return stage.bot.put_context(**run, state=state).bytes


def _kept(stage: Stage, run: Values) -> str | None:
    return stage.bot.get_context(**run).state


def _stored(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(tables.contexts.c.state)))


def _size(engine: sa.Engine, run: Values) -> int:
    threads = tables.threads.c
    found = sa.select(threads.context_bytes).where(threads.id == run["thread_id"])
    with engine.connect() as connection:
        return int(connection.scalar(found) or 0)


@pytest.mark.guarantee("G-CTX-01")
def test_it_is_had_back_byte_for_byte_and_replaced_whole(stage: Stage) -> None:
    run = stage.open_turn()
    nothing = stage.bot.get_context(**run)
    assert (nothing.state, nothing.fence, nothing.updated_at) == (None, None, None)
    for state in (SECRET, "a", "b", '{"z": [1,\n 2]}', "\x01\x7f\u2028", "😀" * 1000, "{}"):
        assert _put(stage, run, state) == len(state.encode())
        kept = stage.bot.get_context(**run)
        assert (kept.state, kept.fence, kept.updated_at) == (state, 1, START)
        assert _size(stage.engine, run) == len(state.encode())
    assert _stored(stage.engine) == ["{}"]


@pytest.mark.guarantee("G-CTX-01")
def test_a_later_run_of_the_same_turn_has_it_too(stage: Stage) -> None:
    run = stage.open_turn("r1")
    _put(stage, run)
    stage.clock.forward(15)
    second = stage.take(str(run["thread_id"]), "r2")
    kept = stage.bot.get_context(**second)
    assert (kept.state, kept.fence) == (SECRET, 1)
    stage.bot.release_run(**second)
    third = stage.take(str(run["thread_id"]), "r3")
    assert _put(stage, third, "newer") == 5
    stage.propose(third, "c")
    digest = stage.ask(third, "c")["usr_alice"]
    stage.rest(third, "awaiting-approval")
    assert _stored(stage.engine) == ["newer"]
    stage.approve(third, "c", digest)
    fourth = stage.take(str(run["thread_id"]), "r4")
    kept = stage.bot.get_context(**fourth)
    assert (kept.state, kept.fence) == ("newer", 3)


def _rested(stage: Stage, run: Values) -> Values:
    """Rest the turn, and take the lease of the waiting turn."""
    stage.propose(run, "c")
    stage.ask(run, "c")
    stage.rest(run, "awaiting-approval")
    return run


def _interrupt(stage: Stage, run: Values) -> None:
    stage.bot.release_run(**run)
    stage.me.interrupt_turn(thread_id=str(run["thread_id"]))


def _supersede(stage: Stage, run: Values) -> None:
    _rested(stage, run)
    stage.me.send_message(
        thread_id=str(run["thread_id"]), text="Never mind", supersede_approvals=True
    )


def _next_opens(stage: Stage, run: Values) -> None:
    stage.me.send_message(thread_id=str(run["thread_id"]), text="And?", when_busy="queue")
    stage.rest(run)
    assert stage.me.get_thread(thread_id=str(run["thread_id"])).turn == 2


ENDS: dict[str, Callable[[Stage, Values], object]] = {
    "finish": lambda stage, run: stage.rest(run),
    "error": lambda stage, run: stage.append(
        run, {"type": "turn-error", "code": "c", "message": "m"}
    ),
    "interrupt": _interrupt,
    "interrupt of a waiting turn": lambda stage, run: stage.me.interrupt_turn(
        thread_id=str(_rested(stage, run)["thread_id"])
    ),
    "close": lambda stage, run: stage.me.close_thread(thread_id=str(run["thread_id"])),
    "close of a waiting turn": lambda stage, run: stage.me.close_thread(
        thread_id=str(_rested(stage, run)["thread_id"])
    ),
    "abandon": lambda stage, run: stage.bot.abandon_turn(
        thread_id=str(run["thread_id"]), reason="gone", fence=1
    ),
    "supersede": _supersede,
    "the next message": _next_opens,
}


@pytest.mark.guarantee("G-CTX-02")
@pytest.mark.parametrize("how", ENDS)
def test_it_goes_with_the_end_of_its_turn(stage: Stage, how: str) -> None:
    run = stage.open_turn()
    other = stage.open_turn("r2")
    _put(stage, run)
    _put(stage, other, "another thread's")
    with stage.engine.connect() as connection:
        # Not before: it is of the same transaction.
        bound = stage.assistant.bind(connection, ROBOT)
        bound.append_events(**run, events=[{"type": "turn-finish", "reason": "done"}])
        connection.rollback()
    assert sorted(_stored(stage.engine)) == ["another thread's", SECRET]
    ENDS[how](stage, run)
    assert _stored(stage.engine) == ["another thread's"]
    assert _size(stage.engine, run) == 0
    with pytest.raises(AssistantError) as late:
        _put(stage, run)
    assert late.value.to_dict()["reason"] in ("run_fenced", "thread_closed")
    with pytest.raises(AssistantError):
        _kept(stage, run)
    assert _stored(stage.engine) == ["another thread's"]


@pytest.mark.guarantee("G-CTX-02")
def test_the_next_turn_begins_with_none(stage: Stage) -> None:
    run = stage.open_turn()
    _put(stage, run)
    _supersede(stage, run)
    taken = stage.take(str(run["thread_id"]))
    assert _kept(stage, taken) is None
    _put(stage, taken, "of turn 2")
    assert _kept(stage, taken) == "of turn 2"


@pytest.mark.guarantee("G-CTX-02")
def test_what_an_older_release_left_behind_is_given_to_no_other_turn(stage: Stage) -> None:
    run = stage.open_turn()
    _put(stage, run)
    stage.rest(run)
    with stage.engine.begin() as connection:
        # An older release ends a turn without a thought of its context.
        row = {"tenant_id": "acme", "thread_id": run["thread_id"], "turn": 1, "fence": 1}
        insert = sa.insert(tables.contexts).values(**row, state="left", updated_at=START)
        connection.execute(insert)
        here = tables.threads.c.id == run["thread_id"]
        connection.execute(sa.update(tables.threads).where(here).values(context_bytes=4))
    stage.me.send_message(thread_id=str(run["thread_id"]), text="Next")
    taken = stage.take(str(run["thread_id"]))
    assert _kept(stage, taken) is None
    assert _stored(stage.engine) == []


@pytest.mark.guarantee("G-CTX-03")
def test_only_the_holder_of_the_lease_puts_it_there_and_has_it_back(stage: Stage) -> None:
    run = stage.open_turn("r1")
    _put(stage, run)
    stage.clock.forward(15)
    taken = stage.take(str(run["thread_id"]), "r2")
    before = dump(stage.engine)
    for wrong in (run, {**run, "fence": 2}, {**taken, "run_id": "r1"}, {**taken, "fence": 9}):
        for attempt in (_put, _kept):
            with refused(ConflictReason.RUN_FENCED):
                attempt(stage, wrong)
    for caller, refusal in (
        (ALICE, PermissionDenied),
        (AUDITOR, PermissionDenied),
        (TWIN["run"], NotFound),
    ):
        ops = stage.assistant.acting_as(caller)
        with pytest.raises(refusal):
            ops.get_context(**taken)
        with pytest.raises(refusal):
            ops.put_context(**taken, state="x")
    assert dump(stage.engine) == before
    stage.clock.forward(14)
    _put(stage, taken)
    stage.clock.forward(14)
    with refused(ConflictReason.RUN_IN_PROGRESS):
        stage.take(str(run["thread_id"]), "r3")


@pytest.mark.guarantee("G-CTX-03")
def test_a_closed_thread_says_that_it_is_closed(stage: Stage) -> None:
    run = stage.open_turn()
    stage.me.close_thread(thread_id=str(run["thread_id"]))
    for attempt in (_put, _kept):
        with refused(ConflictReason.THREAD_CLOSED):
            attempt(stage, run)


@pytest.mark.guarantee("G-CTX-05")
@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_exactly_the_limit_is_kept_and_a_byte_more_is_not(stage: Stage, letter: str) -> None:
    run = stage.open_turn()
    size = len(letter.encode())
    most = letter * (MOST // size)
    assert _put(stage, run, most) == MOST
    assert _kept(stage, run) == most
    before = dump(stage.engine)
    for wrong in (most + "a", most + letter, "", "a\0b", "\0", "\ud800", None, b"a", {"a": 1}, 7):
        with pytest.raises(ValidationFailed) as refusal:
            _put(stage, run, wrong)
        assert refusal.value.facts["path"] == "state"
    assert dump(stage.engine) == before
    low = Assistant(stage.engine, clock=stage.clock, limits=Limits(context_bytes=4))
    assert low.acting_as(ROBOT).put_context(**run, state="four").bytes == 4
    with pytest.raises(ValidationFailed):
        low.acting_as(ROBOT).put_context(**run, state="fours")


@pytest.mark.guarantee("G-CTX-04")
def test_nobody_is_ever_shown_it(play: Play) -> None:
    stage, run = play.stage, play.lost
    _put(stage, run)
    said: list[object] = [
        stage.bot.get_context(**run),
        str(stage.bot.get_context(**run)),
        PutContext(**run, state=SECRET),
        stage.bot.put_context(**run, state=SECRET),
        stage.assistant.survey(),
        stage.assistant.list_runnable(),
        list(stage.assistant.doctor()),
    ]
    for name in sorted(READING_OPERATIONS):
        for caller in (ALICE, AUDITOR, ROBOT):
            right = play.right(name)
            if "thread_id" in right:
                right["thread_id"] = run["thread_id"]
            with suppress(AssistantError):
                said.append(stage.assistant.acting_as(caller).call(name, right))
    thread_id = str(run["thread_id"])
    said += [stage.me.read_events_json(thread_id=thread_id, last=1000)]
    for wrong in ({"state": f"{SECRET}\0"}, {"state": SECRET * MOST}, {"surprise": SECRET}):
        with pytest.raises(ValidationFailed) as refusal:
            stage.bot.call("assistant/put-context", {**run, "state": SECRET, **wrong})
        said.append(everything_said(refusal.value))
    with refused(ConflictReason.RUN_FENCED) as fenced:
        _put(stage, {**run, "fence": 9})
    said.append(everything_said(fenced.value))
    _break(stage, run)
    said += [repr(finding) for finding in stage.assistant.doctor()]
    said.append(stage.assistant.drain_outbox(said.append, limit=1000))
    assert len(said) > 40
    assert [one for one in said if "hunter2" in repr(one)] == []
    # It is there all the while, and given back as plain data to a host that calls by name.
    answer = stage.bot.call("assistant/get-context", run)
    assert answer["state"] == SECRET
    assert OPERATIONS["assistant/get-context"].permissions == ("assistant:run",)


def _break(stage: Stage, run: Values) -> None:
    """Let the doctor have something to say of it."""
    with stage.engine.begin() as connection:
        here = tables.contexts.c.thread_id == run["thread_id"]
        connection.execute(sa.update(tables.contexts).where(here).values(fence=99))
    assert [finding.code for finding in stage.assistant.doctor()] == ["context"]


@pytest.mark.guarantee("G-CTX-04")
def test_events_of_the_run_do_not_tell_of_it(stage: Stage) -> None:
    run = stage.open_turn()
    _put(stage, run)
    stage.append(run, delta("x"))
    assert stage.types(run) == ["user-message", "turn-start", "text-delta"]
