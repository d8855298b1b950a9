"""Operations wait for one lock each, so no two of them wait for each other in a circle."""

from collections import Counter
from functools import partial
from random import Random

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, Bound, Conflict, NotFound, Raced
from engine_assistant.model.errors import AssistantError
from tests.rig.duels import Arena
from tests.rig.races import Barrier, Worker
from tests.rig.sides import (
    ALICE,
    Scene,
    Side,
    acquire,
    append,
    ask,
    beat,
    claim,
    close,
    create,
    decide,
    finish,
    interrupt,
    output,
    proposal,
    register,
    release,
    send,
    settle,
    words,
)

THREADS = 8
ON = 3
TRIES = 40


@pytest.mark.guarantee("G-RACE-19")
def test_a_mix_of_every_operation_never_deadlocks(postgres_arena: Arena) -> None:
    """Eight connections do whatever comes to mind on three threads: no circle, a whole record."""
    arena = postgres_arena
    before = _deadlocks(arena)
    talks = [arena.idle() for _ in range(ON)]
    begin = Barrier(THREADS)
    workers = [Worker(partial(_rummage, arena, talks, seed, begin)) for seed in range(THREADS)]
    told: Counter[str] = Counter()
    for worker in workers:
        told += worker.join()
    assert told["done"] > THREADS * TRIES / 5
    assert _deadlocks(arena) == before
    # With retry_for=0 nothing is repeated: nobody was a deadlock's victim in silence.
    assert [word for word in told if word in ("40P01", "40001", "55P03")] == []
    for thread_id in talks:
        _assert_whole(arena, thread_id)


def _rummage(arena: Arena, talks: list[str], seed: int, begin: Barrier) -> Counter[str]:
    random = Random(seed)
    told: Counter[str] = Counter()
    begin.wait()
    for _ in range(TRIES):
        error = arena.attempt(_any_side(arena, random, random.choice(talks)), arena.engine).error
        told[_word(error)] += 1
    return told


def _word(error: AssistantError | None) -> str:
    if error is None:
        return "done"
    if isinstance(error, Raced):
        return str(error.facts.get("sqlstate", "raced"))
    # Whoever guesses is often refused; anything else is a fault.
    assert isinstance(error, Conflict | NotFound), error
    return error.code


def _any_side(arena: Arena, random: Random, thread_id: str) -> Side[object]:
    head = arena.head(thread_id)
    scene = Scene(thread_id, head.run_id or "run-a", head.fence or 1, random.choice(("c1", "c2")))
    cards = arena.me.list_approvals(thread_id=thread_id).items
    if cards:
        card = random.choice(cards)
        scene = Scene(**scene.held, call_id=card.call_id, digest=card.digest)
    reason = random.choice(("done", "awaiting-approval", "interrupted"))
    sides: list[Side[object]] = [
        send(thread_id),
        send(thread_id, supersede=True),
        interrupt(thread_id),
        register(thread_id),
        create(f"key-{random.randint(1, 3)}"),
        acquire(thread_id, f"run-{random.choice('ab')}"),
        beat(scene),
        release(scene),
        append(scene, words("plain"), words("words")),
        append(scene, words("plain"), words("words")),
        append(scene, proposal(f"{random.getrandbits(64)}")),
        append(scene, proposal(scene.call_id)),
        append(scene, output(scene.call_id)),
        append(scene, finish(reason)),
        ask(scene),
        ask(scene, reissue=True),
        claim(scene),
        settle(scene),
    ]
    if scene.digest:
        sides += [decide(scene), decide(scene, approved=False)]
    return random.choice(sides) if random.random() < 0.999 else close(thread_id)


def _deadlocks(arena: Arena) -> int:
    statement = sa.text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    arena.engine.dispose()  # a backend tells its numbers when it ends
    with arena.engine.connect() as connection:
        return int(connection.scalars(statement).one())


def _assert_whole(arena: Arena, thread_id: str) -> None:
    head = arena.head(thread_id)
    assert list(arena.assistant.doctor(thread_id=thread_id)) == []
    events = []
    while len(events) < head.last_seq:
        events += arena.me.read_events(thread_id=thread_id, after=len(events), limit=1000).events
    assert [event.seq for event in events] == list(range(1, head.last_seq + 1))
    arena.milestones(thread_id)


@pytest.mark.guarantee("G-RACE-19")
@pytest.mark.parametrize("ordered", [True, False], ids=["lock_threads", "as-it-comes"])
def test_two_transactions_over_the_same_threads_both_end(
    postgres_arena: Arena, ordered: bool
) -> None:
    """Two transactions lock two threads in opposite orders: one order for both, or one retries.

    As it comes, the circle is real: Postgres breaks it (40P01) and `transact` begins again.
    """
    arena = postgres_arena
    before = _deadlocks(arena)
    one, two = arena.idle(), arena.idle()
    meet = Barrier(2)
    tries: list[str] = []

    def both(first: str, second: str, ops: Bound) -> int:
        tries.append(first)
        if ordered:
            ops.lock_threads([first, second])
        turn = ops.send_message(thread_id=first, text="hello").turn
        if not ordered and len(tries) <= 2:
            meet.wait()
        ops.send_message(thread_id=second, text="hello")
        ops.interrupt_turn(thread_id=first)
        ops.interrupt_turn(thread_id=second)
        return turn

    assistant = Assistant(arena.engine, retry_for=30)
    workers = [
        Worker(partial(assistant.transact, ALICE, partial(both, first, second)))
        for first, second in ((one, two), (two, one))
    ]
    turns = [worker.join() for worker in workers]
    assert sorted(turns) == [1, 2]
    # On a slow machine Postgres may take both for the one in the way.
    assert len(tries) == 2 if ordered else len(tries) >= 3
    assert (_deadlocks(arena) > before) is not ordered
    assert [arena.head(thread_id).turn for thread_id in (one, two)] == [2, 2]
