"""What the doctor says: a code for programs, a place, and one sentence for people."""

from collections.abc import Callable
from enum import StrEnum

from engine_assistant.model.views import View

__all__ = ["Code", "Finding", "Notes", "Progress", "Report"]


class Code(StrEnum):
    """What kind of thing is wrong. Spellings are only ever added."""

    NUMBERS = "numbers"
    """Numbers of events are missing, or stand where none may stand."""
    HEAD = "head"
    """The thread's head is not the number of its newest event."""
    UNREADABLE = "unreadable"
    """An event or a row cannot be read at all."""
    BYTES = "bytes"
    """An event reads, but its bytes are not those that the engine writes for it."""
    TYPE = "type"
    """The type beside an event is not the type inside it."""
    TURN = "turn"
    """An event is counted to another turn than the one it stands in."""
    STREAM_VERSION = "stream-version"
    """A turn began in another version of the stream."""
    ORDER = "order"
    """An event stands where no event of its kind may stand."""
    AFTER_CLOSE = "after-close"
    """An event is dated after its thread was closed."""
    THREAD_ROW = "thread-row"
    """The state of a thread does not follow from its events."""
    LEASE = "lease"
    """A lease where none may be, or a lease and its run that do not agree."""
    RUN = "run"
    """A run's row cannot be true."""
    BATCH = "batch"
    """The last numbered batch is not the events it says it is."""
    CALL_MOVE = "call-move"
    """An event moves a call that its state did not let it move, or that nobody proposed."""
    LEFT_OPEN = "left-open"
    """A turn rested, or another began, over a call that had not ended."""
    CALL_STATE = "call-state"
    """A call's state does not follow from its events."""
    CALL_ROW = "call-row"
    """Another column of a call does not follow from its events."""
    CALL_MISSING = "call-missing"
    """A call was proposed and has no row."""
    CALL_STRAY = "call-stray"
    """A call has a row and was never proposed."""
    RESULT = "result"
    """A call has no result, another one, or one too many."""
    REQUEST = "request"
    """An approval was asked for something that the call is not, or of nobody."""
    DIGEST = "digest"
    """A digest is not what it is made of."""
    DECISION = "decision"
    """Somebody decided who was not asked, or what could not be decided any more."""
    CLAIM = "claim"
    """An execution was claimed without the approvals for it, or twice."""
    EXPIRY = "expiry"
    """Something happened after its time was over, or lapsed before it."""
    APPROVAL_STATE = "approval-state"
    """An approval's state does not follow from the events."""
    APPROVAL_ROW = "approval-row"
    """Another column of an approval does not follow from the events."""
    APPROVAL_MISSING = "approval-missing"
    """Somebody was asked and has no row."""
    APPROVAL_STRAY = "approval-stray"
    """An approval has a row and nobody asked for it."""
    INPUT_ROW = "input-row"
    """The receipt of a message does not follow from the events."""
    INPUT_MISSING = "input-missing"
    """A message has no receipt."""
    INPUT_STRAY = "input-stray"
    """A receipt is of no message."""
    QUEUE = "queue"
    """What waits on a thread is no line of messages, or the thread counts another number."""
    FILE = "file"
    """A file that a message names is missing, or is another file now."""
    CONTEXT = "context"
    """Private context is kept for a turn that is over, or is not what the thread says."""
    COMPACTION = "compaction"
    """A summary stands for what it cannot stand for, or is covered by another one than it is."""
    MILESTONE = "milestone"
    """A milestone is missing, wrong, or one too many."""
    STRAY = "stray"
    """Rows belong to a thread that does not exist."""


class Finding(View):
    """One thing that is wrong. It never repeats what people wrote or what tools were given.

    Attributes:
        tenant: whose thread.
        thread_id: which thread.
        code: what kind of thing, for programs.
        where: the place in the thread: `event 17`, `call c1`, `approval c1/usr_x`, `thread`.
        message: one sentence for people.
    """

    tenant: str
    thread_id: str
    code: Code
    where: str
    message: str


class Report(View):
    """How much was examined, and how much was found.

    `unknown_events` are of types that a newer release writes. They are no findings.
    """

    threads: int = 0
    events: int = 0
    unknown_events: int = 0
    calls: int = 0
    approvals: int = 0
    findings: int = 0


Progress = Callable[[Report], object]
"""Told the totals after each thread, and once more at the end."""


class Notes:
    """What was found in one thread and not yet told."""

    def __init__(self, tenant: str, thread_id: str) -> None:
        """Begin with nothing."""
        self._tenant = tenant
        self._thread_id = thread_id
        self._found: list[Finding] = []

    def add(self, code: Code, where: str, message: str) -> None:
        """Note one thing."""
        self._found.append(
            Finding(
                tenant=self._tenant,
                thread_id=self._thread_id,
                code=code,
                where=where,
                message=message,
            )
        )

    def drain(self) -> list[Finding]:
        """Return what was noted since the last time."""
        found, self._found = self._found, []
        return found
