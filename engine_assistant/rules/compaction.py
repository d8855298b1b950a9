"""A summary in the place of messages: where a history may be cut, and what covers what.

The log stays as it is. A cut goes between messages: never through an answer, never between a
call and its result, never through a summary. So a history is valid whatever is summarised in it.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from engine_assistant.model.commands.history import Compact
from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.fields import MAX_INTEGER
from engine_assistant.model.rows import Change, CompactionRow, Plan, ThreadRow
from engine_assistant.model.views.history import Compaction, HistoryTool
from engine_assistant.rules.history import Telling
from engine_assistant.rules.turns import refuse_closed

__all__ = ["compact", "compaction_view", "gaps", "refuse_compaction", "repeated_compaction"]

Range = tuple[int, int]
"""The first number of a range, and the last."""


def compaction_view(row: CompactionRow, *, duplicate: bool = False) -> Compaction:
    """Return a summary as it is shown."""
    names = set(Compaction.model_fields) - {"duplicate"}
    return Compaction(**{name: getattr(row, name) for name in names}, duplicate=duplicate)


def gaps(effective: Sequence[CompactionRow], head: int) -> list[Range]:
    """Return the ranges of events that no summary stands for, in order."""
    found: list[Range] = []
    first = 1
    for row in sorted(effective, key=lambda row: row.from_seq):
        if first < row.from_seq:
            found.append((first, row.from_seq - 1))
        first = row.to_seq + 1
    if first <= head:
        found.append((first, head))
    return found


def repeated_compaction(made: Sequence[CompactionRow], command: Compact) -> Compaction | None:
    """Answer again what was made before: the same range with the same summary.

    Judged before the head, which may have moved since, and also when another one covers it by now:
    whoever asks for a lost answer must not take back what came later.

    Args:
        made: all summaries of the range, in the order in which they were made.
        command: what is asked.
    """
    wanted = (command.from_seq, command.to_seq, command.summary)
    for row in made:
        if (row.from_seq, row.to_seq, row.summary) == wanted:
            return compaction_view(row, duplicate=True)
    return None


def refuse_compaction(thread: ThreadRow, command: Compact) -> None:
    """Refuse a summary that was not made of the thread as it stands.

    Raises:
        Conflict: `thread_closed`; `stale_head`, when something was recorded since.
    """
    refuse_closed(thread)
    if thread.last_seq != command.expected_head:
        raise Conflict(
            ConflictReason.STALE_HEAD,
            "The thread went on since this was read. Read its history again.",
            head_seq=thread.last_seq,
        )


def compact(
    thread: ThreadRow,
    now: datetime,
    command: Compact,
    effective: Sequence[CompactionRow],
    telling: Telling,
) -> Plan[Compaction]:
    """Let a summary stand for whole messages, and for the summaries among them.

    Args:
        thread: the locked thread.
        now: the clock, read after the lock.
        command: what is asked.
        effective: the summaries that no other one covers.
        telling: the history as it stands with them.

    Raises:
        Conflict: `range_refused`, when the range cuts through something, or holds no message; its
            facts are the widest range within that does not, or None when there is none.
    """
    asked = (command.from_seq, command.to_seq)
    legal = _legal_within(asked, telling, thread.last_seq)
    if legal != asked:
        first, last = legal or (None, None)
        raise Conflict(
            ConflictReason.RANGE_REFUSED,
            "A summary stands for whole messages, with the results of their calls.",
            from_seq=first,
            to_seq=last,
        )
    row = CompactionRow(
        tenant_id=thread.tenant_id,
        thread_id=thread.id,
        n=1 + max((row.n for row in effective), default=0),
        from_seq=command.from_seq,
        to_seq=command.to_seq,
        summary=command.summary,
        covered_by=None,
        created_at=now,
    )
    covered = tuple(
        Change(older, replace(older, covered_by=row.n))
        for older in effective
        if row.from_seq <= older.from_seq and older.to_seq <= row.to_seq
    )
    return Plan(
        answer=compaction_view(row),
        before=thread,
        after=thread,
        changes=(*covered, Change(None, row)),
    )


def _legal_within(asked: Range, telling: Telling, head: int) -> Range | None:
    """Return the widest range within the one asked that cuts through nothing, if there is one."""
    whole = sorted(_inseparable(telling))
    first, last = asked[0], min(asked[1], head)
    for start, end in whole:
        if start < first <= end:
            first = end + 1
    for start, end in reversed(whole):
        if start <= last < end:
            last = start - 1
    held = any(first <= message.from_seq <= last for message in telling.messages)
    return (first, last) if held else None


def _inseparable(telling: Telling) -> list[Range]:
    """Return the ranges that no cut may go through."""
    ranges = [(message.from_seq, message.to_seq) for message in telling.messages]
    for index, message in enumerate(telling.messages):
        if isinstance(message, HistoryTool):
            ranges[index] = (ranges[index - 1][0], message.to_seq)
    if telling.unfinished is not None:
        ranges.append((telling.unfinished, MAX_INTEGER))
    return ranges
