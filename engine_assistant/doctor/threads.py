"""The thread row and its last batch, compared with the events."""

import hashlib
import re
from typing import Final

from engine_assistant.doctor.derived import Derived
from engine_assistant.doctor.findings import Code, Notes
from engine_assistant.doctor.reading import Columns, StoredEvent
from engine_assistant.doctor.rows import differing
from engine_assistant.model.events import CallClosed, Known, TurnStart, UserMessage
from engine_assistant.model.machines import ThreadStatus, TurnState
from engine_assistant.model.times import from_text, to_text

__all__ = ["Batch", "check_thread"]

_LEASE: Final = ("run_id", "lease_until", "stale_after")
_LONGEST_LEASE: Final = 3600
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def check_thread(derived: Derived, row: Columns) -> None:
    """Compare the thread row with the events."""
    notes = derived.notes
    if row["last_seq"] != derived.last_seq:
        message = f"The head is {row['last_seq']}; the newest event is {derived.last_seq}."
        notes.add(Code.HEAD, "thread", message)
    expected: dict[str, object] = {
        "turn": derived.turn,
        "turn_state": derived.turn_state.value,
        "open_since": derived.open_since,
        "next_deadline": _deadline(derived),
        "last_active_at": derived.last_active_at,
    }
    names = differing(row, expected)
    if names:
        notes.add(Code.THREAD_ROW, "thread", f"The row differs from the events in: {names}.")
    if row["interrupt_requested_at"] is not None and row["turn_state"] != TurnState.OPEN:
        notes.add(Code.THREAD_ROW, "thread", "A run is asked to stop, and no turn is open.")
    if (row["status"] == ThreadStatus.CLOSED) != (row["closed_at"] is not None):
        notes.add(Code.THREAD_ROW, "thread", "Its status and the time of its closing disagree.")
    if row["status"] not in tuple(ThreadStatus):
        notes.add(Code.THREAD_ROW, "thread", "Its status is none that there is.")
    _check_origin(notes, row)
    _check_lease(notes, row)


def imported_seq(row: Columns) -> int:
    """Return with how many events a thread was imported."""
    seq = row["imported_seq"]
    return seq if isinstance(seq, int) else 0


def _check_origin(notes: Notes, row: Columns) -> None:
    """Check that a thread says of where it came from all that an import says, or nothing."""
    origin, digest = row["origin_tenant"], row["import_digest"]
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        notes.add(Code.THREAD_ROW, "thread", "What it was imported from is no digest.")
    seq, last = row["imported_seq"], row["last_seq"]
    if seq != 0 and (digest is None or not _is_among(seq, last)):
        notes.add(Code.THREAD_ROW, "thread", "It was not imported with so many events.")
    if origin is not None and (digest is None or origin == row["tenant_id"]):
        notes.add(Code.THREAD_ROW, "thread", "It says where it came from, and was not imported.")


def _is_among(seq: object, last: object) -> bool:
    return isinstance(seq, int) and isinstance(last, int) and 0 <= seq <= last


def _deadline(derived: Derived) -> str | None:
    """Return until when a waiting turn waits."""
    if derived.turn_state is not TurnState.AWAITING:
        return None
    deadlines = [call.expires_at for call in derived.waiting() if call.expires_at is not None]
    return max(deadlines, default=None)


def _check_lease(notes: Notes, row: Columns) -> None:
    held = [row[name] is not None for name in _LEASE]
    if any(held) != all(held):
        notes.add(Code.LEASE, "thread", "The lease is there only in part.")
    if not any(held):
        return
    if row["turn_state"] == TurnState.IDLE or row["status"] != ThreadStatus.OPEN:
        notes.add(Code.LEASE, "thread", "There is a lease, and no turn that it could be for.")
    seconds, until = row["stale_after"], row["lease_until"]
    if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_LEASE:
        notes.add(Code.LEASE, "thread", "The lease is of a length that none has.")
    if until is not None and not _is_time(until):
        notes.add(Code.LEASE, "thread", "The time until which the lease runs cannot be read.")


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and to_text(from_text(text)) == text
    except ValueError:
        return False


class Batch:
    """The last numbered batch, digested again while its events come by."""

    def __init__(self, row: Columns) -> None:
        """Look at what the thread row says of it."""
        self._row = row
        first, last = row["batch_first_seq"], row["batch_last_seq"]
        self._range = range(0)
        if isinstance(first, int) and isinstance(last, int):
            self._range = range(first, last + 1)
        self._bodies = hashlib.sha256()
        self._digested = False
        self._replaced = False

    def take(self, stored: StoredEvent, event: Known | None) -> None:
        """Digest an event that is in the batch, and of its run.

        Closings are the engine's, and the next turn may have begun with the end of this one.
        """
        if stored.seq not in self._range or isinstance(event, UserMessage | TurnStart):
            return
        if isinstance(event, CallClosed):
            # An error of a lapsed call is not kept: the call is closed as expired in its place.
            self._replaced = True
            return
        separator = "\n" if self._digested else ""
        self._bodies.update((separator + str(stored.body)).encode())
        self._digested = True

    def check(self, notes: Notes, last_seq: int) -> None:
        """Compare what was seen with the thread row."""
        row = self._row
        known = [row[name] for name in ("batch_digest", "batch_first_seq", "batch_last_seq")]
        if row["last_batch"] == 0:
            if known != [None, None, None]:
                notes.add(Code.BATCH, "thread", "There was no batch, and yet it is described.")
            return
        if None in known or not self._range or self._range.stop > last_seq + 1:
            notes.add(Code.BATCH, "thread", "The last batch is not described by its numbers.")
        elif not self._replaced and self._bodies.hexdigest() != row["batch_digest"]:
            notes.add(Code.BATCH, "thread", "The last batch has another digest than its events.")
