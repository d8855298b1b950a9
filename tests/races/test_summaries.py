"""Summaries and seeds at once with something else."""

import pytest

from engine_assistant import Assistant, Conflict, ConflictReason, Raced, make_engine
from engine_assistant.model.views.history import Compaction, SeededThread
from tests.rig.duels import Arena, Stop
from tests.rig.logs import brief
from tests.rig.sides import (
    ALICE,
    ROBOT,
    Scene,
    Side,
    append,
    create,
    finish,
    output,
    proposal,
    send,
    words,
)

SAID = [{"role": "user", "text": "Hello"}, {"role": "assistant", "text": "Hi"}]


def compact(scene: Scene, first: int, last: int, head: int, text: str = "x") -> Side[Compaction]:
    return Side(
        ROBOT,
        lambda ops: ops.compact(
            thread_id=scene.thread_id,
            from_seq=first,
            to_seq=last,
            summary=text,
            expected_head=head,
        ),
    )


def seed(title: str | None = "Refund", *, said: int = 2) -> Side[SeededThread]:
    return Side(
        ROBOT,
        lambda ops: ops.seed_thread(
            subject=ALICE.principal, key="key", messages=SAID[:said], title=title
        ),
    )


def _told(arena: Arena, thread_id: str) -> list[str]:
    return brief(arena.me.history(thread_id=thread_id).messages)


def _talk(arena: Arena) -> Scene:
    """Make a running turn: 1 and 2 its beginning, 3 an answer, 4 and 5 a call and its result."""
    scene = arena.running()
    arena.does(append(scene, words("one"), {"type": "step-finish"}))  # 3, 4
    arena.does(append(scene, proposal("c1"), output("c1")))  # 5, 6
    return scene


@pytest.mark.guarantee("G-HIST-13")
@pytest.mark.parametrize("events", [(words("two"),), (finish(),)], ids=["plain", "folded"])
def test_what_was_recorded_meanwhile_is_in_no_summary(
    arena: Arena, stop: Stop, events: tuple[dict[str, object], ...]
) -> None:
    """A run writes while what it said before is summarised: the summary is stale."""
    scene = _talk(arena)
    _, behind = arena.race(append(scene, *events), compact(scene, 1, 6, 6), stop=stop)
    assert behind.refused(ConflictReason.STALE_HEAD).facts["head_seq"] == 7
    assert arena.me.list_compactions(thread_id=scene.thread_id).items == ()


@pytest.mark.guarantee("G-HIST-13")
def test_what_was_rolled_back_makes_no_summary_stale(arena: Arena) -> None:
    scene = _talk(arena)
    _, behind = arena.race(
        append(scene, words("two")), compact(scene, 1, 6, 6), stop=Stop.WRITTEN, keep=False
    )
    assert behind.get().n == 1


@pytest.mark.guarantee("G-HIST-13", "G-HIST-11")
def test_a_run_that_waits_for_a_summary_writes_behind_it(arena: Arena, stop: Stop) -> None:
    """What is said meanwhile is told, whole, after the summary."""
    scene = _talk(arena)
    _, behind = arena.race(compact(scene, 1, 6, 6), append(scene, words("two")), stop=stop)
    assert behind.error is None
    assert _told(arena, scene.thread_id) == ["summary x", "assistant two()"]
    assert arena.log(scene.thread_id)[-1] == "text-delta"


@pytest.mark.guarantee("G-HIST-13", "G-QUEUE-02")
@pytest.mark.parametrize("first", ["message", "summary"])
def test_a_message_that_gets_in_line_makes_no_summary_stale(
    arena: Arena, stop: Stop, first: str
) -> None:
    """What waits is not in the log, so both are kept whichever comes first."""
    scene = _talk(arena)
    sides: list[Side[object]] = [
        send(scene.thread_id, "next", when_busy="queue"),
        compact(scene, 1, 6, 6),
    ]
    ahead, behind = arena.race(*(sides if first == "message" else sides[::-1]), stop=stop)
    assert (ahead.error, behind.error) == (None, None)
    assert arena.head(scene.thread_id).queued == 1
    arena.does(append(scene, finish()))
    assert _told(arena, scene.thread_id) == ["summary x", "user next"]


@pytest.mark.guarantee("G-HIST-12", "G-HIST-13")
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ((1, 4), (1, 6), ["summary b"]),
        ((1, 6), (1, 6), ["summary b"]),
        ((1, 4), (5, 6), ["summary a", "summary b"]),
        ((1, 6), (1, 4), None),
        ((1, 4), (3, 6), None),
    ],
    ids=["within", "the same", "beside", "around", "across"],
)
def test_two_summaries_at_once_do_not_overlap(
    arena: Arena,
    stop: Stop,
    first: tuple[int, int],
    second: tuple[int, int],
    told: list[str] | None,
) -> None:
    """Two processes summarise what they both read: the second covers the first, or is refused."""
    scene = _talk(arena)
    ahead, behind = arena.race(
        compact(scene, *first, 6, "a"), compact(scene, *second, 6, "b"), stop=stop
    )
    assert ahead.get().n == 1
    if told is None:
        behind.refused(ConflictReason.RANGE_REFUSED)
        assert _told(arena, scene.thread_id)[0] == "summary a"
    else:
        assert behind.get().n == 2
        assert _told(arena, scene.thread_id) == told
    assert list(arena.assistant.doctor()) == []


@pytest.mark.guarantee("G-HIST-14")
def test_one_summary_made_twice_at_once_is_one(arena: Arena, stop: Stop) -> None:
    scene = _talk(arena)
    side = compact(scene, 1, 6, 6)
    ahead, behind = arena.race(side, side, stop=stop)
    assert behind.get() == ahead.get().model_copy(update={"duplicate": True})
    assert len(arena.me.list_compactions(thread_id=scene.thread_id).items) == 1


@pytest.mark.guarantee("G-SEED-02")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rolled back"])
def test_two_seeds_under_one_key_at_once_are_one(arena: Arena, keep: bool) -> None:
    """A conversation is moved here by two processes at once: one thread, with one beginning."""
    ahead, behind = arena.race(seed(), seed(), stop=Stop.WRITTEN, keep=keep)
    second = behind.get()
    assert (second.id == ahead.get().id, second.duplicate) == (keep, keep)
    (thread,) = arena.me.list_threads().items
    assert thread.id == second.id
    assert arena.log(thread.id) == ["seeded-message"] * 2
    assert arena.milestones(thread.id) == ["thread-created"]


@pytest.mark.guarantee("G-SEED-02")
def test_other_seeds_under_the_key_are_refused(arena: Arena) -> None:
    ahead, behind = arena.race(seed(), seed(said=1), stop=Stop.WRITTEN)
    assert behind.refused(ConflictReason.KEY_REUSED).facts["thread_id"] == ahead.get().id
    assert arena.log(ahead.get().id) == ["seeded-message"] * 2


@pytest.mark.guarantee("G-SEED-02")
def test_a_person_who_opens_a_thread_under_the_key_comes_first_or_second(arena: Arena) -> None:
    ahead, behind = arena.race(create("key"), seed(), stop=Stop.WRITTEN)
    assert behind.refused(ConflictReason.KEY_REUSED).facts["thread_id"] == ahead.get().id
    assert arena.log(ahead.get().id) == []


@pytest.mark.guarantee("G-SEED-02")
def test_a_person_who_waits_for_the_seeds_gets_the_seeded_thread(arena: Arena) -> None:
    ahead, behind = arena.race(seed(), create("key"), stop=Stop.WRITTEN)
    assert behind.get().id == ahead.get().id


@pytest.mark.guarantee("G-SEED-04")
def test_a_message_that_races_with_a_summary_of_the_seeds(arena: Arena, stop: Stop) -> None:
    thread = arena.does(seed())
    scene = Scene(thread.id)
    _, behind = arena.race(send(thread.id), compact(scene, 1, 2, 2), stop=stop)
    behind.refused(ConflictReason.STALE_HEAD)
    arena.does(compact(scene, 1, 2, 4))
    assert _told(arena, thread.id) == ["summary x", "user hello"]


@pytest.mark.guarantee("G-RACE-22", "G-HIST-13")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_in_a_stricter_isolation_two_summaries_race_and_do_not_break(
    postgres_arena: Arena, level: str
) -> None:
    """A summary moves nothing that is locked, so the second does not see the first."""
    arena = postgres_arena
    scene = _talk(arena)
    first, second = compact(scene, 1, 6, 6, "a"), compact(scene, 1, 4, 6, "b")
    strict = make_engine(arena.url).execution_options(isolation_level=level)
    try:
        ahead, behind = arena.race(first, second, stop=Stop.WRITTEN, engine=strict)
        assert ahead.get().n == 1
        assert isinstance(behind.error, Raced)
        with pytest.raises(Conflict) as refused:  # as whoever tries again is told
            second.does(Assistant(strict).acting_as(second.caller))
        assert refused.value.reason is ConflictReason.RANGE_REFUSED
    finally:
        strict.dispose()
