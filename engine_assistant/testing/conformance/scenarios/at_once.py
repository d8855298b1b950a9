"""Several at once: one numbering, one turn, one claim."""

from functools import partial

from engine_assistant import Conflict, ConflictReason
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Stage, words

WRITERS = 8
EACH = 5


@shows("G-RACE-01", "G-RACE-02")
def numbers_have_no_gap_whoever_writes(stage: Stage) -> None:
    """Many appends at once take the numbers 1 to N; every batch is whole, and in its order."""
    held = stage.running()
    thread_id = held["thread_id"]

    def write(writer: int) -> list[int | None]:
        seqs: list[int | None] = []
        for n in range(EACH):
            said = [words(f"{writer}.{n}.a"), words(f"{writer}.{n}.b")]
            first, second = stage.bot.append_events(**held, events=said).events
            assert first.seq is not None
            assert second.seq == first.seq + 1
            seqs.append(first.seq)
        return seqs

    told = stage.at_once([partial(write, writer) for writer in range(WRITERS)])
    numbers = [seq for seqs in told if not isinstance(seqs, Conflict) for seq in seqs]
    assert len(numbers) == len(set(numbers)) == WRITERS * EACH
    assert all(
        seqs == sorted(seqs, key=lambda n: n or 0) for seqs in told if isinstance(seqs, list)
    )
    assert len(stage.log(thread_id)) == 2 + 2 * WRITERS * EACH


@shows("G-RACE-15")
def two_messages_at_once_open_one_turn(stage: Stage) -> None:
    """One is taken, the others are told that a turn is in progress."""
    thread_id = stage.me.create_thread().id
    told = stage.at_once(
        [partial(stage.me.send_message, thread_id=thread_id, text=f"Hello {n}") for n in range(4)]
    )
    refused = [one.reason for one in told if isinstance(one, Conflict)]
    assert refused == [ConflictReason.TURN_IN_PROGRESS] * 3
    assert stage.types(thread_id) == ["user-message", "turn-start"]


@shows("G-RACE-09")
def of_many_runs_one_gets_the_lease(stage: Stage) -> None:
    """The others are told that a run is in progress."""
    thread_id = stage.opened()
    told = stage.at_once([partial(stage.take, thread_id, f"run-{n}") for n in range(4)])
    refused = [one.reason for one in told if isinstance(one, Conflict)]
    assert refused == [ConflictReason.RUN_IN_PROGRESS] * 3


@shows("G-RACE-21", "G-OPS-36")
def of_many_claims_one_counts(stage: Stage) -> None:
    """A call is approved once, claimed once, and the others hear so."""
    held = stage.running()
    digest = stage.ask(held)
    decided = stage.at_once([partial(stage.decide, held, digest)] * 4)
    claimed = stage.at_once([partial(stage.claim, held)] * 4)
    for told, reason in (
        (decided, ConflictReason.ALREADY_RESOLVED),
        (claimed, ConflictReason.ALREADY_EXECUTED),
    ):
        assert [one.reason for one in told if isinstance(one, Conflict)] == [reason] * 3
    types = stage.types(held["thread_id"])
    assert (types.count("approval-resolved"), types.count("execution-claimed")) == (1, 1)


@shows("G-OPS-05")
def of_many_creators_one_opens_the_thread(stage: Stage) -> None:
    """All of them are answered the same thread."""
    made = stage.at_once([partial(stage.me.create_thread, key="case-7")] * 4)
    assert len({one.id for one in made if not isinstance(one, Conflict)}) == 1
    assert len(stage.me.list_threads().items) == 1
