"""Each conditional write refuses alone what happened past the lock: `Raced`, and nothing is kept.

Under the lock a guard never fails. Here the lock is taken away, or somebody writes past it.
"""

from collections.abc import Callable, Mapping

import pytest
import sqlalchemy as sa

from engine_assistant import Raced
from engine_assistant.model.machines import (
    ApprovalState,
    CallState,
    InputState,
    RunState,
    ThreadStatus,
    TurnState,
)
from engine_assistant.operations import (
    approvals,
    calls,
    contexts,
    events,
    inputs,
    messages,
    runs,
    threads,
)
from engine_assistant.store import postgres, tables
from tests.rig.duels import Arena, Gate, Outcome
from tests.rig.races import Worker
from tests.rig.sides import (
    Scene,
    Side,
    abandon,
    acquire,
    append,
    ask,
    beat,
    cancel,
    claim,
    close,
    decide,
    edit,
    failure,
    finish,
    interrupt,
    keep,
    note,
    output,
    proposal,
    release,
    resolve,
    retry,
    send,
    take,
    words,
)

Sides = tuple[str, Side[object], Side[object]]


def _r03(arena: Arena) -> Sides:
    thread_id = arena.idle()
    return thread_id, send(thread_id, "one"), send(thread_id, "two")


def _r05(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, append(scene, proposal("c2")), close(scene.thread_id)


def _r07(arena: Arena) -> Sides:
    scene = arena.running()
    arena.lapse_lease(scene.thread_id)
    return scene.thread_id, append(scene, proposal("c2")), acquire(scene.thread_id, "run-b")


def _r08(arena: Arena) -> Sides:
    scene = arena.running()
    arena.lapse_lease(scene.thread_id)
    return scene.thread_id, beat(scene), acquire(scene.thread_id, "run-b")


def _r09(arena: Arena) -> Sides:
    scene = arena.opened()
    return scene.thread_id, acquire(scene.thread_id, "run-a"), acquire(scene.thread_id, "run-b")


def _r10(arena: Arena) -> Sides:
    scene = arena.opened()
    return scene.thread_id, acquire(scene.thread_id, "run-a"), close(scene.thread_id)


def _r12(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, release(scene), acquire(scene.thread_id, "run-a")


def _r13(arena: Arena) -> Sides:
    scene = arena.waiting()
    return scene.thread_id, decide(scene), decide(scene, approved=False)


def _r17(arena: Arena) -> Sides:
    scene = arena.proposed()
    return scene.thread_id, append(scene, output()), ask(scene)


def _r18(arena: Arena) -> Sides:
    scene = arena.approved()
    return scene.thread_id, append(scene, failure()), claim(scene)


def _r19(arena: Arena) -> Sides:
    scene = arena.asked()
    return scene.thread_id, append(scene, finish("awaiting-approval")), decide(scene)


def _r20(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, append(scene, proposal("c2")), append(scene, finish())


def _r21(arena: Arena) -> Sides:
    scene = arena.approved()
    return scene.thread_id, claim(scene), close(scene.thread_id)


def _r26(arena: Arena) -> Sides:
    thread_id = arena.idle()
    return thread_id, close(thread_id), close(thread_id)


def _r31(arena: Arena) -> Sides:
    scene = arena.asked()
    return scene.thread_id, ask(scene, reissue=True), decide(scene)


def _r32(arena: Arena) -> Sides:
    scene = arena.proposed()
    return scene.thread_id, append(scene, finish()), ask(scene)


def _r38(arena: Arena) -> Sides:
    scene = arena.running()
    same = send(scene.thread_id, "again", key="k", when_busy="queue")
    return scene.thread_id, same, same


def _r40_edited(arena: Arena) -> Sides:
    scene, (input_id,) = arena.lined_up("next")
    return scene.thread_id, append(scene, finish()), edit(scene.thread_id, input_id)


def _r40_opened(arena: Arena) -> Sides:
    scene, (input_id,) = arena.lined_up("next")
    return scene.thread_id, edit(scene.thread_id, input_id), append(scene, finish())


def _r41(arena: Arena) -> Sides:
    scene = arena.running()
    waits = send(scene.thread_id, "next", when_busy="queue")
    return scene.thread_id, append(scene, finish()), waits


def _r42(arena: Arena) -> Sides:
    scene, _ = arena.lined_up("ordinary")
    urgent = send(scene.thread_id, "urgent", when_busy="queue", priority="next")
    return scene.thread_id, append(scene, finish()), urgent


def _r44(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, append(scene, finish()), abandon(scene.thread_id, fence=scene.fence)


def _r45_taken(arena: Arena) -> Sides:
    scene, (input_id,) = arena.lined_up("left", when_busy="steer")
    return scene.thread_id, cancel(scene.thread_id, input_id), take(scene)


def _r45_cancelled(arena: Arena) -> Sides:
    scene, (input_id,) = arena.lined_up("left", when_busy="steer")
    return scene.thread_id, take(scene), cancel(scene.thread_id, input_id)


def _r46(arena: Arena) -> Sides:
    scene, _ = arena.lined_up("next")
    return scene.thread_id, interrupt(scene.thread_id), append(scene, finish())


def _r47(arena: Arena) -> Sides:
    scene = arena.running()
    gone = abandon(scene.thread_id, fence=scene.fence)
    return scene.thread_id, gone, append(scene, proposal("c2"))


def _r43_noted(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, note(scene), append(scene, finish(), used=2)


def _r43_kept(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, append(scene, finish()), keep(scene)


def _r47_kept(arena: Arena) -> Sides:
    scene = arena.running()
    arena.lapse_lease(scene.thread_id)
    return scene.thread_id, keep(scene), acquire(scene.thread_id, "run-b")


def _r34_retried(arena: Arena) -> Sides:
    scene = arena.lost()
    return scene.thread_id, retry(scene), resolve(scene)


def _r34_resolved(arena: Arena) -> Sides:
    scene = arena.lost()
    return scene.thread_id, resolve(scene, happened=False), retry(scene)


def _stop_button(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, interrupt(scene.thread_id), append(scene, finish())


def _plain_words(arena: Arena) -> Sides:
    scene = arena.running()
    return scene.thread_id, append(scene, proposal("c2")), append(scene, words("one statement"))


UNLOCKED = {
    name.strip("_"): build
    for name, build in list(globals().items())
    if name.startswith(("_r", "_stop", "_plain"))
}


@pytest.mark.guarantee("G-RACE-27")
@pytest.mark.parametrize("build", UNLOCKED.values(), ids=UNLOCKED.keys())
def test_without_the_lock_the_later_writer_still_keeps_nothing(
    postgres_arena: Arena,
    build: Callable[[Arena], Sides],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody locks: one side has decided, the other does all of it and commits; then it writes."""
    arena = postgres_arena
    thread_id, slow, fast = build(arena)
    monkeypatch.setattr(postgres, "_locked", _read_without_locking)
    decided = Gate()
    _before_each_write(monkeypatch, lambda _: decided.stop())
    # The first to come to the gate stops: the slow one. The fast one passes.
    with arena.holding(slow, keep=True, gate=decided) as (ahead, gate):
        arena.attempt(fast).get()
        kept = _everything(arena, thread_id)
        gate.release()
        _assert_raced(ahead)
    assert _everything(arena, thread_id) == kept
    arena.log(thread_id)


def _read_without_locking(*where: sa.ColumnElement[bool]) -> sa.CTE:
    return sa.select(tables.threads).where(*where).cte("locked").prefix_with("MATERIALIZED")


def _assert_raced(ahead: Worker[Outcome[object]]) -> None:
    assert isinstance(ahead.join().error, Raced)


def _everything(arena: Arena, thread_id: str) -> list[list[tuple[object, ...]]]:
    """Answer every row of a thread, in every table."""
    found = []
    with arena.engine.connect() as connection:
        for table in tables.METADATA.sorted_tables:
            key = table.c.id if table is tables.threads else table.c.thread_id
            rows = connection.execute(
                sa.select(table).where(key == thread_id).order_by(*table.primary_key)
            )
            found.append([tuple(row) for row in rows])
    return found


# ---------------------------------------------------------------- past the lock

MODULES = (approvals, calls, contexts, events, inputs, messages, runs, threads)
GATE = {
    "state": CallState.AWAITING,
    "operation": "refund",
    "version": "v1",
    "expires_at": "2030-01-01T00:00:00.000Z",
    "required": 1,
    "request_seq": 1,
    "request_digest": "f" * 64,
}
OTHER = "0" * 64

Moved = tuple[str, Callable[[Arena], Scene], Callable[[Scene], Side[object]], Mapping[str, object]]


def _lined_up(arena: Arena) -> Scene:
    return arena.lined_up("next")[0]


MOVED: dict[str, Moved] = {
    # What moved, the scene, who is about to write, and to what it moved.
    "r13-approval-state": ("approvals", Arena.waiting, decide, {"state": ApprovalState.DENIED}),
    "r13-approval-digest": ("approvals", Arena.waiting, decide, {"digest": OTHER}),
    "r13-call-state": ("tool_calls", Arena.waiting, decide, {"state": CallState.DENIED}),
    "r13-call-digest": ("tool_calls", Arena.waiting, decide, {"request_digest": OTHER}),
    "r17-gated": ("tool_calls", Arena.proposed, lambda s: append(s, output()), GATE),
    "r18-claimed": (
        "tool_calls",
        Arena.approved,
        lambda s: append(s, failure()),
        {"state": CallState.EXECUTING},
    ),
    "r22-claimed": ("tool_calls", Arena.approved, claim, {"state": CallState.EXECUTING}),
    "r22-asked-again": ("tool_calls", Arena.approved, claim, {"request_digest": OTHER}),
    "r23-expired": ("tool_calls", Arena.approved, claim, {"state": CallState.EXPIRED}),
    "r31-answered": (
        "approvals",
        Arena.asked,
        lambda s: ask(s, reissue=True),
        {"state": ApprovalState.DENIED},
    ),
    "r10-run-ended": ("runs", Arena.running, release, {"state": RunState.LOST}),
    "r04-closed": (
        "threads",
        Arena.running,
        lambda s: append(s, proposal("c2")),
        {"status": ThreadStatus.CLOSED},
    ),
    "r20-rested": (
        "threads",
        Arena.running,
        lambda s: append(s, proposal("c2")),
        {"turn_state": TurnState.IDLE},
    ),
    "r01-numbered": (
        "threads",
        Arena.running,
        lambda s: append(s, proposal("c2")),
        {"last_seq": 7},
    ),
    "r40-edited": ("inputs", _lined_up, lambda s: append(s, finish()), {"body": "{}"}),
    "r45-opened": (
        "inputs",
        _lined_up,
        lambda s: append(s, finish()),
        {"state": InputState.OPENED},
    ),
    "r45-taken-back": (
        "inputs",
        _lined_up,
        lambda s: append(s, finish()),
        {"state": InputState.CANCELLED},
    ),
    "r34-resolved": ("tool_calls", Arena.lost, retry, {"state": CallState.DONE}),
    "r34-retried": ("tool_calls", Arena.lost, resolve, {"state": CallState.EXECUTING}),
    "r35-asked-again": ("tool_calls", Arena.lost, retry, {"request_digest": OTHER}),
    "r43-ended": ("runs", Arena.running, note, {"state": RunState.LOST}),
    "r43-kept": ("threads", Arena.running, lambda s: append(s, finish()), {"context_bytes": 7}),
    "r41-lined-up": ("threads", Arena.running, lambda s: append(s, finish()), {"queued": 7}),
    "r07-fenced": ("threads", Arena.running, beat, {"fence": 7}),
    "r26-closed": (
        "threads",
        Arena.running,
        lambda s: close(s.thread_id),
        {"status": ThreadStatus.CLOSED},
    ),
}


@pytest.mark.guarantee("G-RACE-27")
@pytest.mark.parametrize("moved", MOVED.values(), ids=MOVED.keys())
def test_a_row_that_was_moved_past_the_lock_is_not_written(
    arena: Arena, moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the decision and the write somebody moves a row with plain SQL: Raced."""
    name, build, side, values = moved
    scene = build(arena)
    before = arena.head(scene.thread_id)
    log = arena.log(scene.thread_id)
    table: sa.Table = getattr(tables, name)
    key = table.c.id if name == "threads" else table.c.thread_id
    statement = sa.update(table).where(key == scene.thread_id).values(values)
    if name == "inputs":
        statement = statement.where(tables.inputs.c.state == InputState.QUEUED)
    # Nobody else can reach the head under its lock, nor anything on SQLite: then it is ourselves.
    from_outside = arena.is_postgres and name != "threads"

    def move(connection: sa.Connection) -> None:
        if from_outside:
            with arena.rival.begin() as other:
                assert other.execute(statement).rowcount == 1
        else:
            assert connection.execute(statement).rowcount == 1

    _before_each_write(monkeypatch, move)
    error = arena.attempt(side(scene), arena.engine).error
    assert isinstance(error, Raced)
    assert error.facts["table"] == table.name
    assert arena.head(scene.thread_id) == before
    assert arena.log(scene.thread_id) == log if name != "runs" else True


def _before_each_write(
    monkeypatch: pytest.MonkeyPatch, move: Callable[[sa.Connection], None]
) -> None:
    for module in MODULES:
        write = module.write

        def moved_first(db, plan, write=write):
            move(db.connection)
            return write(db, plan)

        monkeypatch.setattr(module, "write", moved_first)
