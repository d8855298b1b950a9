"""Milestones, walked beside the events that they tell of.

Which milestones a thread has had follows from its events. The outbox holds the newest of them
without a gap: the older ones may have been relayed, or all of them, or the host has its own.
"""

from collections.abc import Iterator

from engine_assistant.doctor.findings import Code, Notes
from engine_assistant.doctor.reading import Columns
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonRefused
from engine_assistant.model.milestones import MilestoneType

__all__ = ["Milestones"]


class Milestones:
    """The outbox rows of one thread, each met by what the events say it must be."""

    def __init__(self, rows: Iterator[Columns], notes: Notes, *, thread: str, subject: str) -> None:
        """Start before the first milestone; `rows` come in the order of their numbers."""
        self._rows = rows
        self._row = next(rows, None)
        self._notes = notes
        self._common: dict[str, str | int | bool] = {"thread_id": thread, "subject_id": subject}
        self._begun = False
        self.count = 0

    def expect(self, kind: MilestoneType, at: str, **facts: str | int | bool) -> None:
        """Say what the next milestone is."""
        self.count += 1
        while self._row is not None and self._number(self._row) < self.count:
            self._stray(self._row)
        if self._row is not None and self._number(self._row) == self.count:
            self._compare(self._row, kind, at, self._common | facts)
            self._begun = True
            self._row = next(self._rows, None)
        elif self._begun:
            # Relayed in order, so what is gone is older than all that is left.
            self._missing()

    def finish(self, counter: object) -> None:
        """Say that there are no more, and what the thread counts."""
        while self._row is not None:
            self._stray(self._row)
        if counter != self.count:
            self._notes.add(
                Code.MILESTONE,
                "thread",
                f"The thread counts {counter} milestones; its events make {self.count}.",
            )

    def _number(self, row: Columns) -> int:
        number = row["n"]
        return number if isinstance(number, int) else 0

    def _stray(self, row: Columns) -> None:
        self._notes.add(
            Code.MILESTONE, f"milestone {row['n']}", "No event makes a milestone of this number."
        )
        self._row = next(self._rows, None)

    def _missing(self) -> None:
        self._notes.add(
            Code.MILESTONE,
            f"milestone {self.count}",
            "It is missing, though an older one has not been relayed.",
        )

    def _compare(
        self, row: Columns, kind: MilestoneType, at: str, facts: dict[str, str | int | bool]
    ) -> None:
        where = f"milestone {self.count}"
        if row["type"] != kind:
            self._notes.add(Code.MILESTONE, where, f"It should be of the type {kind}.")
            return
        if row["created_at"] != at:
            self._notes.add(Code.MILESTONE, where, "It is not of the time of its event.")
        payload = _payload(row["payload"])
        if payload is None:
            self._notes.add(Code.MILESTONE, where, "Its payload cannot be read.")
        elif payload != facts:
            names = sorted(facts.keys() ^ payload.keys()) or sorted(
                name for name in facts if payload[name] != facts[name]
            )
            count = f"{len(names)} of its facts"
            self._notes.add(Code.MILESTONE, where, f"{count} are not those of its event.")


def _payload(text: object) -> dict[str, object] | None:
    if not isinstance(text, str):
        return None
    try:
        read = codec.loads(text)
    except JsonRefused:
        return None
    return dict(read) if isinstance(read, dict) else None
