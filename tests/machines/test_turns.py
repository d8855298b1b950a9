"""Every state of a turn and its lease, tried with everything that a person or a run may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import Engine

from tests.machines.tables import read_table
from tests.rig.states import (
    BEATS,
    LEASE,
    LONG,
    OWNER,
    SHORT,
    Stage,
    finish,
    output,
    proposal,
    ready_request,
    turn_error,
)
from tests.rig.tries import attempt, types_after

Act = Callable[[Stage], object]
WORDS = {"type": "text-delta", "text": "hm"}
C = "c1"


def _send(stage: Stage, when_busy: str = "refuse", *, supersede: bool = False) -> None:
    stage.owner.send_message(
        thread_id=stage.thread_id,
        text="and?",
        supersede_approvals=supersede,
        when_busy=when_busy,
    )


def _wait(stage: Stage, expires_in: float = LONG) -> Stage:
    """Let the turn wait for its owner."""
    return stage.begin().propose(C).ask(C, expires_in).append(finish("awaiting-approval"))


def _close(stage: Stage) -> Stage:
    stage.owner.close_thread(thread_id=stage.thread_id)
    return stage


def _sent(stage: Stage) -> Stage:
    _send(stage)
    stage.fence = 1  # a fence that nobody was given
    return stage


def _released(stage: Stage) -> Stage:
    stage.bot.release_run(**stage.begin().held)
    return stage


def _old(stage: Stage) -> Stage:
    stage.hands.advance(LEASE)
    return stage


PLACES: Mapping[str, Callable[[Stage], Stage]] = {
    "idle, finished": lambda s: s.begin().append(finish("done")),
    "idle, broken": lambda s: s.begin().append(WORDS).append(turn_error()),
    "open": lambda s: s.begin(),
    "open, lease over": lambda s: _old(s.begin()),
    "open, no run yet": _sent,
    "open, released": _released,
    "waiting": _wait,
    "waiting, held": lambda s: _wait(s).acquire(),
    "waiting, lease over": lambda s: _old(_wait(s).acquire()),
    "waiting, lapsed": lambda s: _wait(s, SHORT).lapse(),
    "waiting, lapsed, held": lambda s: _wait(s, SHORT).acquire().lapse(),
    "closed": lambda s: _close(s.begin().propose(C)),
}
ACTS: Mapping[str, Act] = {
    "send": _send,
    "supersede": lambda s: _send(s, supersede=True),
    "queue": lambda s: _send(s, "queue"),
    "steer": lambda s: _send(s, "steer"),
    "break in": lambda s: _send(s, "interrupt"),
    "interrupt": lambda s: s.owner.interrupt_turn(thread_id=s.thread_id),
    "close": _close,
    "another": lambda s: s.bot.acquire_run(thread_id=s.thread_id, run_id="run-2"),
    "again": lambda s: s.bot.acquire_run(thread_id=s.thread_id, run_id="run-1"),
    "give up": lambda s: s.bot.abandon_turn(thread_id=s.thread_id, reason="gone"),
    "renew": lambda s: s.renew(),
    "beat": lambda s: s.bot.beat_run(**s.held),
    "take": lambda s: s.bot.take_inputs(**s.held),
    "plain": lambda s: s.append(WORDS),
    "input": lambda s: s.append(WORDS, proposal("c2")),
    "output": lambda s: s.append(output(C)),
    "done": lambda s: s.append(finish("done")),
    "error": lambda s: s.append(turn_error()),
    "asked again": lambda s: s.append(ready_request(s, C, reissue=True)),
}


# A cell is the turn afterwards, or the reason of a refusal. In the open turns nothing was proposed,
# so there is no call that could have a result or be asked for again.
PEOPLE = read_table("""
place                 | send             | supersede        | interrupt     | close  | another         | again
idle, finished        | open             | open             | idle          | idle   | no_turn_open    | no_turn_open
idle, broken          | open             | open             | idle          | idle   | no_turn_open    | no_turn_open
open                  | turn_in_progress | turn_in_progress | open          | idle   | run_in_progress | open
open, lease over      | turn_in_progress | turn_in_progress | idle          | idle   | open            | open
open, no run yet      | turn_in_progress | turn_in_progress | idle          | idle   | open            | open
open, released        | turn_in_progress | turn_in_progress | idle          | idle   | open            | open
waiting               | approval_pending | open             | idle          | idle   | awaiting        | awaiting
waiting, held         | approval_pending | open             | idle          | idle   | run_in_progress | awaiting
waiting, lease over   | approval_pending | open             | idle          | idle   | awaiting        | awaiting
waiting, lapsed       | open             | open             | idle          | idle   | open            | open
waiting, lapsed, held | open             | open             | idle          | idle   | run_in_progress | open
closed                | thread_closed    | thread_closed    | thread_closed | idle   | thread_closed   | thread_closed
""")  # noqa: E501 - a table is read across

RUNS = read_table("""
place                 | renew         | beat          | plain         | input         | output        | done          | error         | asked again
idle, finished        | no_turn_open  | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced
idle, broken          | no_turn_open  | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced
open                  | open          | open          | open          | open          | call_state    | idle          | idle          | call_state
open, lease over      | open          | open          | open          | open          | call_state    | idle          | idle          | call_state
open, no run yet      | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced
open, released        | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced
waiting               | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced
waiting, held         | awaiting      | awaiting      | no_turn_open  | no_turn_open  | no_turn_open  | no_turn_open  | no_turn_open  | awaiting
waiting, lease over   | awaiting      | awaiting      | no_turn_open  | no_turn_open  | no_turn_open  | no_turn_open  | no_turn_open  | awaiting
waiting, lapsed       | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced    | run_fenced
waiting, lapsed, held | open          | awaiting      | no_turn_open  | no_turn_open  | no_turn_open  | no_turn_open  | no_turn_open  | awaiting
closed                | thread_closed | thread_closed | thread_closed | thread_closed | thread_closed | thread_closed | thread_closed | thread_closed
""")  # noqa: E501 - a table is read across

WAITS = read_table("""
place                 | queue         | steer         | break in      | give up         | take
idle, finished        | open          | open          | open          | no_turn_open    | run_fenced
idle, broken          | open          | open          | open          | no_turn_open    | run_fenced
open                  | open          | open          | open          | run_in_progress | open
open, lease over      | open          | open          | open          | idle            | open
open, no run yet      | open          | open          | open          | idle            | run_fenced
open, released        | open          | open          | open          | idle            | run_fenced
waiting               | awaiting      | awaiting      | open          | idle            | run_fenced
waiting, held         | awaiting      | awaiting      | open          | run_in_progress | no_turn_open
waiting, lease over   | awaiting      | awaiting      | open          | idle            | no_turn_open
waiting, lapsed       | open          | open          | open          | idle            | run_fenced
waiting, lapsed, held | open          | open          | open          | run_in_progress | no_turn_open
closed                | thread_closed | thread_closed | thread_closed | thread_closed   | thread_closed
""")  # noqa: E501 - a table is read across


@pytest.mark.guarantee("G-MACH-10")
@pytest.mark.parametrize("place", PLACES)
def test_in_every_state_of_a_turn_each_operation_does_what_the_table_says(
    engine: Engine, place: str
) -> None:
    cells = {**PEOPLE[place], **RUNS[place], **WAITS[place]}
    assert set(cells) == set(ACTS)
    refused = {act: cell for act, cell in cells.items() if "_" in cell}
    stage = PLACES[place](Stage(engine))
    assert {act: attempt(stage, ACTS[act]) for act in refused} == refused
    for act in cells.keys() - refused.keys():
        stage = PLACES[place](Stage(engine))
        assert attempt(stage, ACTS[act]) is None, act
        assert stage.turn() == cells[act], act


def test_a_thread_that_nobody_wrote_to_takes_only_a_message(engine: Engine) -> None:
    stage = Stage(engine)
    stage.fence = 1
    wanted = {name: RUNS["idle, broken"][name] for name in RUNS["idle, broken"]}
    assert {name: attempt(stage, ACTS[name]) for name in wanted} == wanted
    assert stage.owner.interrupt_turn(thread_id=stage.thread_id).ended is False
    assert stage.log() == []
    _send(stage)
    assert types_after(stage, 0) == ["user-message", "turn-start"]


def test_nothing_is_ever_appended_to_a_closed_thread(engine: Engine) -> None:
    stage = PLACES["closed"](Stage(engine))
    rows = stage.rows()
    _close(stage)
    assert stage.bot.release_run(**stage.held) is False
    assert stage.rows() == rows
    assert attempt(stage, lambda s: s.ask(C)) == "thread_closed"
    # A late result is kept on the row, and only there.
    log, head = stage.log(), stage.rows()["threads"]
    stage.bot.settle_execution(
        thread_id=stage.thread_id, call_id=C, claimed_fence=stage.fence, output=7
    )
    assert (stage.log(), stage.rows()["threads"]) == (log, head)
    assert (stage.state(C), stage.call(C).result) == ("unknown", {"output": 7})


def test_a_gated_call_of_a_closed_thread_is_neither_answered_nor_claimed(engine: Engine) -> None:
    stage = _close(Stage(engine).begin().propose(C).ask(C))
    assert attempt(stage, lambda s: s.answer(C)) == "thread_closed"
    assert attempt(stage, lambda s: s.answer(C, approved=False)) == "thread_closed"
    assert attempt(stage, lambda s: s.claim(C)) == "thread_closed"


# ---------------------------------------------------------------- leases and fences


@pytest.mark.guarantee("G-MACH-11")
def test_a_fence_never_outlives_its_turn(engine: Engine) -> None:
    for place in ("open", "waiting, held", "waiting, lapsed, held"):
        stage = PLACES[place](Stage(engine))
        fence = stage.fence
        if place == "open":
            stage.append(finish("done"))
            _send(stage)
        else:
            _send(stage, supersede=True)  # it takes the lease that is left
            assert (stage.head()["fence"], stage.runs()[fence]) == (fence + 1, "lost")
        refused = {act: attempt(stage, ACTS[act]) for act in ("beat", "plain", "input", "done")}
        assert refused == dict.fromkeys(refused, "run_fenced"), place
        assert stage.bot.release_run(**stage.held) is False


def test_every_holding_of_the_lease_is_kept_with_how_it_ended(engine: Engine) -> None:
    stage = Stage(engine).begin()
    stage.bot.release_run(**stage.held)
    stage.acquire().acquire("run-1").propose(C).ask(C).append(finish("awaiting-approval"))
    stage.answer(C).acquire().append(finish("limit"))
    _close(stage.begin())
    assert stage.runs() == {
        1: "released",
        2: "lost",
        3: "finished",
        4: "finished",
        5: "closed",
    }


def test_a_lease_is_renewed_from_the_clock_and_lasts_as_long_as_its_holder_said(
    engine: Engine,
) -> None:
    stage = Stage(engine)
    _send(stage)
    lease = stage.bot.acquire_run(thread_id=stage.thread_id, run_id="run-1")
    stage.fence = lease.fence
    assert (lease.lease_until - stage.hands.now).total_seconds() == BEATS
    stage.hands.advance(BEATS - 0.001)
    assert attempt(stage, ACTS["another"]) == "run_in_progress"
    assert (stage.bot.beat_run(**stage.held).lease_until - stage.hands.now).seconds == BEATS
    for renewing in ("plain", "input", "renew"):
        stage.hands.advance(BEATS - 0.001)
        ACTS[renewing](stage)
        stage.hands.advance(BEATS - 0.001)
        assert attempt(stage, ACTS["another"]) == "run_in_progress", renewing
    stage.acquire(stale_after=2)
    stage.hands.advance(2)
    taken = stage.bot.acquire_run(thread_id=stage.thread_id, run_id="run-2")
    assert (taken.took_over, taken.fence) == (True, stage.fence + 1)


def test_the_same_run_id_again_is_another_writer_and_took_nobody_over(engine: Engine) -> None:
    stage = Stage(engine).begin()
    old = stage.held
    lease = stage.bot.acquire_run(thread_id=stage.thread_id, run_id=stage.run_id)
    assert (lease.took_over, lease.fence) == (False, old["fence"] + 1)
    assert attempt(stage, lambda s: s.bot.beat_run(**old)) == "run_fenced"
    assert stage.runs() == {1: "lost", 2: "running"}


# ---------------------------------------------------------------- the stop button


@pytest.mark.guarantee("G-MACH-12")
def test_a_live_run_is_asked_to_stop_and_ten_seconds_later_it_is_stopped(engine: Engine) -> None:
    stage = Stage(engine).begin()
    first = stage.owner.interrupt_turn(thread_id=stage.thread_id)
    assert (first.ended, first.requested_at) == (False, stage.hands.now)
    assert stage.bot.beat_run(**stage.held).interrupt_requested
    for events in ([WORDS], [WORDS, proposal(C)]):
        assert stage.bot.append_events(**stage.held, events=events).interrupt_requested
    stage.hands.advance(9.999)
    again = stage.owner.interrupt_turn(thread_id=stage.thread_id)
    assert (again.ended, again.requested_at) == (False, first.requested_at)
    stage.hands.advance(0.001)
    assert stage.owner.interrupt_turn(thread_id=stage.thread_id).ended
    assert attempt(stage, ACTS["plain"]) == "run_fenced"
    assert stage.head()["interrupt_requested_at"] is None


def test_a_stop_that_was_asked_for_ends_with_its_turn(engine: Engine) -> None:
    for ending in (finish("interrupted"), turn_error()):
        stage = Stage(engine).begin()
        stage.owner.interrupt_turn(thread_id=stage.thread_id)
        stage.append(ending).begin()
        assert not stage.bot.beat_run(**stage.held).interrupt_requested


# ---------------------------------------------------------------- deadlines, and who should run


def _runnable(stage: Stage) -> list[str]:
    found = stage.assistant.list_runnable(limit=1000)
    return [entry.why for entry in found if entry.thread_id == stage.thread_id]


@pytest.mark.guarantee("G-MACH-13")
@pytest.mark.parametrize("place", PLACES)
def test_who_should_run_is_every_open_turn_without_a_run_and_every_turn_that_waits_in_vain(
    engine: Engine, place: str
) -> None:
    wanted = {
        "open, lease over": ["lease-ran-out"],
        "open, no run yet": ["no-run"],
        "open, released": ["no-run"],
        "waiting, lapsed": ["approvals-lapsed"],
        "waiting, lapsed, held": [],  # whoever holds it is at work
    }
    stage = PLACES[place](Stage(engine))
    assert _runnable(stage) == wanted.get(place, [])
    head = stage.head()
    assert (head["open_since"] is not None) == (head["turn_state"] == "open")
    assert (head["next_deadline"] is not None) == (head["turn_state"] == "awaiting")


def test_a_turn_waits_until_the_last_of_its_approvals_is_too_late(engine: Engine) -> None:
    stage = Stage(engine).begin().propose(C).ask(C, SHORT).propose("c2").ask("c2", 2 * SHORT)
    stage.append(finish("awaiting-approval")).lapse()
    assert _runnable(stage) == []
    assert attempt(stage, ACTS["send"]) == "approval_pending"
    stage.acquire()
    assert (stage.state(C), stage.state("c2"), stage.turn()) == (
        "expired",
        "awaiting-approval",
        "awaiting",
    )
    stage.bot.release_run(**stage.held)
    assert _runnable(stage.lapse()) == ["approvals-lapsed"]
    stage.acquire()
    assert (stage.state("c2"), stage.turn(), _runnable(stage)) == ("expired", "open", [])


def test_a_request_asked_again_moves_the_deadline_of_a_waiting_turn(engine: Engine) -> None:
    stage = _wait(Stage(engine), SHORT).acquire()
    stage.ask(C, 2 * SHORT, reissue=True).lapse()
    stage.bot.release_run(**stage.held)
    assert _runnable(stage) == []
    stage.lapse()
    assert _runnable(stage) == ["approvals-lapsed"]


def test_a_message_is_kept_as_an_input_that_opened_its_turn(engine: Engine) -> None:
    stage = Stage(engine).begin().append(finish("done"))
    _send(stage)
    inputs = sorted(stage.rows()["inputs"], key=lambda row: int(str(row["turn"])))
    found = [(row["state"], row["author_id"], row["turn"], row["first_seq"]) for row in inputs]
    assert found == [("opened", OWNER, 1, 1), ("opened", OWNER, 2, 4)]
