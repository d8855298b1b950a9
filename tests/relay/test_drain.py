"""Milestones are handed out in order per thread, at least once, by any number of drainers."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import RUN, USE, Assistant, Caller, ValidationFailed
from engine_assistant.model.service import Milestone
from engine_assistant.store.tables import outbox
from tests.rig.races import Worker

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)


@pytest.fixture
def assistant(engine: sa.Engine) -> Iterator[Assistant]:
    """The engine over a fresh database."""
    return Assistant(engine)


def live(assistant: Assistant, turns: int = 1) -> str:
    """Make a thread with a few milestones; return its id."""
    me, robot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread = me.create_thread().id
    for _ in range(turns):
        me.send_message(thread_id=thread, text="hello")
        lease = robot.acquire_run(thread_id=thread, run_id="run")
        robot.append_events(
            thread_id=thread,
            run_id="run",
            fence=lease.fence,
            events=[{"type": "turn-finish", "reason": "done"}],
        )
    return thread


def waiting(assistant: Assistant) -> int:
    """Return how many milestones are still in the outbox."""
    with assistant.engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(outbox)).scalar_one()


@pytest.mark.guarantee("G-RELAY-01")
def test_milestones_are_handed_out_in_order_and_forgotten(assistant: Assistant) -> None:
    threads = {live(assistant, turns=2) for _ in range(3)}
    seen: defaultdict[str, list[int]] = defaultdict(list)
    drained = assistant.drain_outbox(lambda m: seen[m.thread_id].append(m.n))
    assert drained.handed_out == 15
    assert drained.failures == ()
    assert dict(seen) == {thread: [1, 2, 3, 4, 5] for thread in threads}
    assert waiting(assistant) == 0


@pytest.mark.guarantee("G-RELAY-01")
def test_a_limit_leaves_the_rest_for_the_next_pass(assistant: Assistant) -> None:
    for _ in range(3):
        live(assistant, turns=2)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    passes = 0
    while assistant.drain_outbox(lambda m: seen[m.thread_id].append(m.n), limit=4).handed_out:
        passes += 1
    assert passes == 4
    assert list(seen.values()) == [[1, 2, 3, 4, 5]] * 3


@pytest.mark.guarantee("G-RELAY-02")
def test_a_failing_handler_stalls_its_thread_only(assistant: Assistant) -> None:
    bad, good = live(assistant, turns=2), live(assistant)
    seen: list[tuple[str, int]] = []

    def handler(milestone: Milestone) -> None:
        if milestone.thread_id == bad and milestone.n == 3:
            raise RuntimeError("secret")
        seen.append((milestone.thread_id, milestone.n))

    drained = assistant.drain_outbox(handler)
    assert seen == [(bad, 1), (bad, 2), (good, 1), (good, 2), (good, 3)]
    (failure,) = drained.failures
    assert (failure.thread_id, failure.n, failure.error, failure.attempts) == (
        bad,
        3,
        "RuntimeError",
        1,
    )
    assert "secret" not in failure.model_dump_json()
    assert waiting(assistant) == 3
    assert assistant.drain_outbox(handler).handed_out == 0


@pytest.mark.guarantee("G-RELAY-02")
def test_a_stalled_thread_is_tried_again_after_its_pause(
    engine: sa.Engine, ticking: Callable[[float], None], clocked: Assistant
) -> None:
    thread = live(clocked)
    outcome: list[Exception | int] = [RuntimeError(), RuntimeError(), 1]

    def handler(milestone: Milestone) -> None:
        now = outcome.pop(0) if milestone.n == 1 else 1
        if isinstance(now, Exception):
            raise now

    first = clocked.drain_outbox(handler)
    assert [f.attempts for f in first.failures] == [1]
    ticking(0.999)
    assert clocked.drain_outbox(handler).failures == ()
    ticking(0.001)
    assert [f.attempts for f in clocked.drain_outbox(handler).failures] == [2]
    ticking(1.999)
    assert clocked.drain_outbox(handler).handed_out == 0
    ticking(0.001)
    assert clocked.drain_outbox(handler).handed_out == 3
    assert waiting(clocked) == 0
    assert thread


@pytest.mark.guarantee("G-RELAY-03")
def test_a_drainer_that_died_loses_nothing(
    clocked: Assistant, ticking: Callable[[float], None]
) -> None:
    live(clocked)

    class Died(BaseException):
        """What no handler catches: the process is gone."""

    def dies(milestone: Milestone) -> None:
        if milestone.n == 2:
            raise Died

    with pytest.raises(Died):
        clocked.drain_outbox(dies)
    seen: list[int] = []
    assert clocked.drain_outbox(lambda m: seen.append(m.n)).handed_out == 0
    ticking(60)
    clocked.drain_outbox(lambda m: seen.append(m.n))
    assert seen == [1, 2, 3]


@pytest.mark.guarantee("G-RELAY-03")
def test_a_claimed_thread_is_not_taken_twice(assistant: Assistant) -> None:
    live(assistant)
    inner: list[int] = []

    def handler(_: Milestone) -> None:
        inner.append(assistant.drain_outbox(lambda m: inner.append(-m.n)).handed_out)

    assert assistant.drain_outbox(handler).handed_out == 3
    assert inner == [0, 0, 0]


@pytest.mark.guarantee("G-RELAY-01", "G-RELAY-03")
def test_many_drainers_at_once_keep_the_order_of_each_thread(assistant: Assistant) -> None:
    threads = [live(assistant, turns=2) for _ in range(8)]
    seen: defaultdict[str, list[int]] = defaultdict(list)

    def drain() -> None:
        while waiting(assistant):
            assistant.drain_outbox(lambda m: seen[m.thread_id].append(m.n), limit=3)

    workers = [Worker(drain) for _ in range(4)]
    for worker in workers:
        worker.join()
    assert {thread: seen[thread] for thread in threads} == {
        thread: [1, 2, 3, 4, 5] for thread in threads
    }


@pytest.mark.guarantee("G-RELAY-01")
def test_what_comes_in_while_a_handler_works_is_kept(assistant: Assistant) -> None:
    thread = live(assistant)
    seen: list[int] = []

    def handler(milestone: Milestone) -> None:
        if milestone.n == 1:
            assistant.acting_as(ALICE).close_thread(thread_id=thread)
        seen.append(milestone.n)

    assistant.drain_outbox(handler)
    assistant.drain_outbox(handler)
    assert seen == [1, 2, 3, 4]


@pytest.mark.guarantee("G-RELAY-04")
@pytest.mark.parametrize("limit", [0, -1, 1001, True, "5"])
def test_a_wrong_limit_is_refused(assistant: Assistant, limit: int) -> None:
    live(assistant)
    with pytest.raises(ValidationFailed):
        assistant.drain_outbox(print, limit=limit)
    assert waiting(assistant) == 3
