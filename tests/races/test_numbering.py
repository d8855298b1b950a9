"""Numbers are taken under the thread's lock and held to the commit."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, Raced, make_engine
from engine_assistant.model.events import UserMessage
from tests.rig.duels import Arena, Gate, Stop
from tests.rig.races import Worker
from tests.rig.sides import ALICE, Fields, append, ask, proposal, send, words

PLAIN = (words("plain"), words("words"))
FOLDED = (words("a call"), proposal("c2"))


@pytest.mark.guarantee("G-RACE-01")
@pytest.mark.parametrize("first", [PLAIN, FOLDED], ids=["plain", "folded"])
@pytest.mark.parametrize("second", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_two_writers_both_get_numbers_of_their_own(
    arena: Arena, first: tuple[Fields, ...], second: tuple[Fields, ...]
) -> None:
    """Two writers of one run append at once: the second takes its numbers after the first's."""
    scene = arena.running()
    ahead, behind = arena.race(append(scene, *first), append(scene, *second), stop=Stop.WRITTEN)
    assert [event.seq for event in ahead.get().events] == [3, 4]
    assert [event.seq for event in behind.get().events] == [5, 6]
    kinds = [fields["type"] for fields in (*first, *second)]
    assert arena.log(scene.thread_id) == ["user-message", "turn-start", *kinds]


@pytest.mark.guarantee("G-RACE-01")
@pytest.mark.parametrize("second", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_a_number_that_was_rolled_back_is_taken_by_the_next_writer(
    arena: Arena, second: tuple[Fields, ...]
) -> None:
    """A writer has its numbers and rolls back while another waits: no gap is left."""
    scene = arena.running()
    ahead, behind = arena.race(
        append(scene, *PLAIN), append(scene, *second), stop=Stop.WRITTEN, keep=False
    )
    assert [event.seq for event in ahead.get().events] == [3, 4]
    assert [event.seq for event in behind.get().events] == [3, 4]
    assert len(arena.log(scene.thread_id)) == 4


@pytest.mark.guarantee("G-RACE-02")
def test_no_reader_passes_a_number_that_is_not_committed(arena: Arena) -> None:
    """A reader reads on while the lower numbers are uncommitted: no higher one is there to see."""
    scene = arena.running()
    pages = []

    def read() -> None:
        pages.append(arena.me.read_events(thread_id=scene.thread_id, after=2))

    arena.race(
        append(scene, words("lower")),
        append(scene, words("higher")),
        stop=Stop.WRITTEN,
        meanwhile=read,
    )
    read()
    before, after = pages
    assert ([event.seq for event in before.events], before.head_seq) == ([], 2)
    assert ([event.seq for event in after.events], after.head_seq) == ([3, 4], 4)


@pytest.mark.guarantee("G-RACE-03")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "undone"])
def test_a_request_points_at_its_own_event(arena: Arena, stop: Stop, keep: bool) -> None:
    """A request is made while another append takes the next number: it points at its own event."""
    scene = arena.proposed()
    _, asked = arena.race(append(scene, words("in between")), ask(scene), stop=stop, keep=keep)
    request = asked.get()
    assert request.seq == (5 if keep else 4)
    assert arena.call(scene).request_seq == request.seq
    assert arena.log(scene.thread_id)[request.seq - 1] == "approval-request"
    card = arena.me.list_approvals(thread_id=scene.thread_id).items[0]
    assert (card.request_seq, card.digest) == (request.seq, request.requests[0].digest)


@pytest.mark.guarantee("G-RACE-04")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "undone"])
def test_one_call_id_proposed_twice_is_one_call(arena: Arena, stop: Stop, keep: bool) -> None:
    """Two writers propose the same call id at once: the second proposes it again, no error."""
    scene = arena.running()
    ahead, behind = arena.race(
        append(scene, proposal("c1", {"order": 1})),
        append(scene, proposal("c1", {"order": 2})),
        stop=stop,
        keep=keep,
    )
    assert ahead.error is None
    newest = behind.get().events[0].seq
    call = arena.me.get_call(thread_id=scene.thread_id, call_id="c1")
    assert call.input == {"order": 2}
    assert arena.call(scene).input_seq == newest
    assert arena.log(scene.thread_id)[2:] == ["tool-input"] * (2 if keep else 1)


@pytest.mark.guarantee("G-RACE-05")
def test_a_late_writer_does_not_move_the_threads_activity_back(arena: Arena) -> None:
    """A writer whose clock stands behind comes second: the listing does not jump back."""
    thread_id = arena.idle()
    before = arena.head(thread_id).last_active_at
    slow = Assistant(arena.engine, clock=lambda: datetime.now(UTC) - timedelta(hours=1)).acting_as(
        ALICE
    )
    slow.send_message(thread_id=thread_id, text="from a slow clock")
    assert arena.head(thread_id).last_active_at == before


@pytest.mark.guarantee("G-RACE-05")
def test_a_writer_that_waited_is_stamped_after_the_one_it_waited_for(
    postgres_arena: Arena,
) -> None:
    """A writer begins first and waits for a later one: its events are not dated before it."""
    arena = postgres_arena
    scene = arena.running()
    ahead, behind = arena.race(
        append(scene, words("begun later")),
        append(scene, words("begun first, waited")),
        stop=Stop.WRITTEN,
        meanwhile=lambda: arena.wait_past(arena.now() + timedelta(milliseconds=2)),
    )
    first, second = ahead.get().events[0].at, behind.get().events[0].at
    assert first is not None
    assert second is not None
    assert first < second


@pytest.mark.guarantee("G-RACE-06")
def test_no_milestone_of_what_was_rolled_back(arena: Arena) -> None:
    """A message and its milestone roll back while another is sent: one milestone, gapless."""
    thread_id = arena.idle()
    seen: list[list[str]] = []
    _, behind = arena.race(
        send(thread_id, "taken back"),
        send(thread_id, "kept"),
        stop=Stop.WRITTEN,
        keep=False,
        meanwhile=lambda: seen.append(arena.milestones(thread_id)),
    )
    assert behind.get().turn == 1
    assert seen == [["thread-created"]]
    assert arena.milestones(thread_id) == ["thread-created", "turn-started"]
    (message, _) = arena.me.read_events(thread_id=thread_id).events
    assert isinstance(message, UserMessage)
    assert message.text == "kept"


@pytest.mark.guarantee("G-RACE-06")
def test_two_subscribers_do_not_take_one_milestone(arena: Arena) -> None:
    """One drainer has claimed and not committed while another drains: it takes nothing."""
    thread_id = arena.idle()
    arena.does(send(thread_id))
    gate = Gate()
    mine: list[int] = []
    first = make_engine(arena.url)
    sa.event.listen(first, "commit", lambda _: gate.stop())
    drainer = Worker(lambda: Assistant(first).drain_outbox(lambda m: mine.append(m.n)))
    try:
        gate.reached.wait()
        theirs = _drained(arena)
    finally:
        gate.release()
    assert drainer.join().handed_out == 2
    first.dispose()
    assert (theirs, mine) == ([], [1, 2])
    assert _drained(arena) == []


def _drained(arena: Arena) -> list[int]:
    """Drain once, at a busy timeout of 0; a drainer that is refused has taken nothing."""
    taken: list[int] = []
    try:
        Assistant(arena.rival).drain_outbox(lambda m: taken.append(m.n))
    except Raced:
        assert not arena.is_postgres
    return taken
