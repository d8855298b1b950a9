"""Runs, each compared with the lease and with the events that ended it; and the private context."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import ValidationError

from engine_assistant.doctor.derived import Derived
from engine_assistant.doctor.findings import Code, Notes
from engine_assistant.doctor.reading import Columns
from engine_assistant.model.machines import RunState, TurnState
from engine_assistant.model.usage import Usage
from engine_assistant.model.views.runs import RunOperation

__all__ = ["Held", "check_context", "check_fences", "check_runs"]

Held = tuple[str, int]
"""Who held a fence, and in which turn; 0 when an older release did not keep it."""

_REASONS: Final[Mapping[object, tuple[str, ...]]] = {
    RunState.RELEASED: ("released",),
    RunState.LOST: ("replaced", "superseded", "interrupted", "abandoned"),
    RunState.CLOSED: ("closed",),
}
"""By what a run can have ended, unless its own event rested its turn."""


def check_runs(derived: Derived, thread: Columns, rows: Iterable[Columns]) -> dict[int, Held]:
    """Check the runs of a thread against its lease; return who held which fence."""
    notes = derived.notes
    held: dict[int, Held] = {}
    finished: Counter[object] = Counter()
    leased = False
    turn = 0
    for row in rows:
        fence = row["fence"] if isinstance(row["fence"], int) else 0
        of = row["turn"] if isinstance(row["turn"], int) else -1
        held[fence] = (str(row["run_id"]), of)
        if row["state"] == RunState.RUNNING:
            leased = leased or (fence, row["run_id"]) == (thread["fence"], thread["run_id"])
        if row["state"] == RunState.FINISHED:
            finished[row["ended_at"]] += 1
        wrong = _wrong(row, thread, fence) or _unlike(derived, row, range(turn, derived.turn + 1))
        if wrong is not None:
            notes.add(Code.RUN, f"run {fence}", wrong)
        turn = max(turn, of)
    if thread["run_id"] is not None and not leased:
        notes.add(Code.LEASE, "thread", "There is a lease, and no running run that holds it.")
    # A run finishes with the event that rests its turn, and each such event is of one run.
    for at in {*finished, *derived.own_rests}:
        if not derived.own_rests[str(at)] <= finished[at] <= derived.rests[str(at)]:
            message = f"The runs finished at {at} are not those whose events rested a turn then."
            notes.add(Code.RUN, "thread", message)
    return held


def _wrong(row: Columns, thread: Columns, fence: int) -> str | None:
    """Return what cannot be true of a run and its lease, or None."""
    state = row["state"]
    if state not in tuple(RunState):
        return "Its state is none that there is."
    top = thread["fence"]
    if not isinstance(top, int) or not 1 <= fence <= top:
        return "Its fence is above the thread's."
    if state == RunState.RUNNING:
        if (fence, row["run_id"]) != (top, thread["run_id"]):
            return "It runs, and does not hold the lease."
        return "It runs, and has ended." if row["ended_at"] is not None else None
    if row["ended_at"] is None:
        return "It has ended, and nobody knows when."
    if state == RunState.CLOSED and row["ended_at"] != thread["closed_at"]:
        return "It was ended by a closing that there was not."
    return None


def _unlike(derived: Derived, row: Columns, turns: range) -> str | None:
    """Return what a run's record says that cannot be, or None.

    An older release keeps no turn and no reason.
    """
    if row["turn"] != 0 and row["turn"] not in turns:
        return "It was in a turn that there was not then."
    if not _is_reason(derived, row):
        return "It did not end by what it says that it ended by."
    if not _is_kept(Usage, row["usage"]):
        return "What it used up cannot be read."
    if not _is_kept(RunOperation, row["operation"]):
        return "What it did last cannot be read."
    return None


def _is_reason(derived: Derived, row: Columns) -> bool:
    reason = row["reason"]
    if reason is None:
        return True
    if row["state"] == RunState.FINISHED:
        return (row["ended_at"], reason) in derived.rest_reasons
    return reason in _REASONS.get(row["state"], ())


def _is_kept(kind: type[Usage] | type[RunOperation], text: object) -> bool:
    """Return whether a value is there, byte for byte as it is written, or not at all."""
    if text is None:
        return True
    try:
        return isinstance(text, str) and kind.model_validate_json(text).stored() == text
    except ValidationError:
        return False


def check_fences(derived: Derived, held: Mapping[int, Held], fence: object) -> None:
    """Check the fences under which calls ran: each once held, in that turn, and rising."""
    highest = 0
    for seq, used, run_id, turn in sorted(derived.claims):
        where = f"event {seq}"
        holder, of = held.get(used, (None, 0))
        if holder is None or (run_id and holder != run_id):
            derived.notes.add(Code.CLAIM, where, "No such run held the lease under this fence.")
        elif used < highest or not isinstance(fence, int) or used > fence:
            derived.notes.add(Code.CLAIM, where, "The fence of its call is out of order.")
        elif of not in (0, turn):
            derived.notes.add(Code.CLAIM, where, "The run of this fence was in another turn.")
        highest = max(highest, used)


def check_context(notes: Notes, thread: Columns, rows: Iterable[Columns]) -> None:
    """Check that private context is kept for a turn that is not over, and for none that is."""
    kept = next(iter(rows), None)
    if kept is not None:
        wrong = _wrong_context(thread, kept)
    else:
        there = thread["context_bytes"] != 0
        wrong = "The thread says how long it is, and there is none." if there else None
    if wrong is not None:
        notes.add(Code.CONTEXT, "context", wrong)


def _wrong_context(thread: Columns, kept: Columns) -> str | None:
    """Return what cannot be true of a context that is kept. It is measured, never told."""
    if thread["turn_state"] == TurnState.IDLE:
        return "It is kept, and the turn that it was for is over."
    if kept["turn"] != thread["turn"]:
        return "It is of another turn."
    state, fence, top = kept["state"], kept["fence"], thread["fence"]
    if not isinstance(state, str) or len(state.encode()) != thread["context_bytes"]:
        return "It is not as long as the thread says."
    if not isinstance(fence, int) or not isinstance(top, int) or not 1 <= fence <= top:
        return "It was put there under a fence that there was not."
    return None
