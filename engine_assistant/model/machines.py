"""The machines: every state that a row can be in, and every move between them.

Rules that must be true if this file is true:

1. Only this file spells a state. CHECK constraints, WHERE clauses, diagrams and the test
   matrix are derived from the tables below, and from `refusals` beside it.
2. A state changes by a move that stands here, or not at all.
3. No call leaves `running`, `awaiting-approval`, `approved` or `executing` without an event
   that says so, and every call ends with exactly one result.

Theory
======

A *thread* is open until it is closed, and then nothing is appended for ever.

A *turn* is one answer to one message, or to several that waited together. `idle` means that the
person may speak. `open` means that the assistant does. `awaiting` means that the assistant stopped
to ask; the turn goes on when somebody answers, or when nobody can any more. Whoever ends a turn
opens that of the next message that waits, so on an idle thread none does.

A *run* is one holding of the lease. A fence never outlives its turn: whatever rests a turn
gives the lease up in the same transaction, and whoever else ends it takes the lease. So a
process that slept through the end of its turn can never wake into the next one. A run is
`finished` when its own event rested the turn, `released` when it gave the lease up inside an
open turn, `lost` when it was replaced or somebody else ended the turn, `closed` when the
thread was closed under it.

A *call* is one proposal of the model to use a tool. An ungated call runs when it is proposed.
A gated one waits for approval, is claimed by exactly one run, and only then runs. Four endings
that others fold into "failed" are told apart, because they answer different questions:
`expired` (nobody answered, or claimed, in time), `superseded` (the person said something else
instead), `cancelled` (it was ended before it ran) and `unknown` (it may have happened: whoever
ran it is gone). `unknown` is never retried in silence.

An *approval* is one person's say over one request. A request that is asked again makes new
rows and the old ones become `superseded`, so an old card can never approve a new request.

An *input* is one message that somebody sent, and what became of it. It opens a turn at once, or it
is `queued` while another turn is not over: then it is `opened` by the end of that turn, `absorbed`
by that turn's own run, or `cancelled`. It stands in the log only once a turn holds it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from engine_assistant.model.errors import ConflictReason as Refused
from engine_assistant.model.machine import Machine


class ThreadStatus(StrEnum):
    """Whether a thread takes events."""

    OPEN = "open"
    CLOSED = "closed"


class TurnState(StrEnum):
    """Who may speak."""

    IDLE = "idle"
    OPEN = "open"
    AWAITING = "awaiting"


class RunState(StrEnum):
    """How one holding of the lease stands, or ended."""

    RUNNING = "running"
    FINISHED = "finished"
    RELEASED = "released"
    LOST = "lost"
    CLOSED = "closed"


class CallState(StrEnum):
    """How one proposed tool call stands, or ended."""

    RUNNING = "running"
    AWAITING = "awaiting-approval"
    APPROVED = "approved"
    DENIED = "denied"
    EXECUTING = "executing"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class ApprovalState(StrEnum):
    """How one person's say over one request stands, or ended."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class InputState(StrEnum):
    """What became of a message."""

    QUEUED = "queued"
    OPENED = "opened"
    ABSORBED = "absorbed"
    CANCELLED = "cancelled"


class WhenBusy(StrEnum):
    """What to do with a message that cannot open a turn now."""

    REFUSE = "refuse"
    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT = "interrupt"


class Priority(StrEnum):
    """Which queued message opens first."""

    NORMAL = "normal"
    NEXT = "next"


class Trigger(StrEnum):
    """What moves a row: an operation, an event, or a column of the closing table."""

    SEND = "send-message"
    QUEUE = "send-message, queued"
    OPEN_NEXT = "the turn before it is over"
    TAKE = "take-inputs"
    EDIT = "edit-input"
    WITHDRAW = "cancel-input"
    REST = "turn-finish awaiting-approval"
    FINISH = "turn-finish, turn-error"
    END = "interrupt, close, abandon"
    SETTLE = "a call is settled"
    LAPSE = "nothing unlapsed waits"
    ACQUIRE = "acquire-run"
    RELEASE = "release-run"
    REPLACE = "the fence rises"
    CLOSE = "close-thread"
    TOOL_INPUT = "tool-input"
    REQUEST = "approval-request"
    REISSUE = "approval-request, asked again"
    APPROVE = "approved"
    DENY = "denied"
    RESOLVE = "resolve-approval"
    CLAIM = "execution-claimed"
    OUTPUT = "tool-output"
    ERROR = "tool-error"
    LATE_OUTPUT = "tool-output, late"
    LATE_ERROR = "tool-error, late"
    RETRY = "call-retried"
    RECLAIM = "execution-claimed, again"
    HAPPENED = "unknown-resolved, it happened"
    DID_NOT_HAPPEN = "unknown-resolved, it did not"
    EXPIRE = "call-closed, expired"
    SUPERSEDE = "call-closed, superseded"
    CANCEL = "call-closed, cancelled"
    LOSE = "call-closed, unknown"


class Ending(StrEnum):
    """What ends, or leaves behind, the calls of a turn: the rows of the closing table."""

    DONE = "own turn-finish, done"
    FINISHED = "own turn-finish, another reason, or turn-error"
    RESTED = "own turn-finish, awaiting-approval"
    FENCED = "takeover, release, any rise of the fence"
    ENDED = "interrupt, close, abandon"
    SUPERSEDED = "a message that supersedes"


_C, _A, _T = CallState, ApprovalState, Trigger

OPEN_CALLS: Final = (_C.RUNNING, _C.AWAITING, _C.APPROVED, _C.EXECUTING)
"""The states that a call must still leave: the columns of the closing table."""

Outcome = CallState | Refused | None
"""A state: the call is closed so. None: it stays. A reason: the ending itself is refused."""


def _columns(*outcomes: Outcome) -> Mapping[CallState, Outcome]:
    return dict(zip(OPEN_CALLS, outcomes, strict=True))


# A call past its expiry has become `expired` before this table is asked.
CLOSING: Final[Mapping[Ending, Mapping[CallState, Outcome]]] = {
    # ending          running        awaiting-approval         approved      executing
    Ending.DONE: _columns(_C.CANCELLED, Refused.APPROVAL_PENDING, _C.CANCELLED, _C.UNKNOWN),
    Ending.FINISHED: _columns(_C.CANCELLED, _C.CANCELLED, _C.CANCELLED, _C.UNKNOWN),
    Ending.RESTED: _columns(_C.UNKNOWN, None, Refused.EXECUTION_NOT_CLAIMED, _C.UNKNOWN),
    Ending.FENCED: _columns(_C.UNKNOWN, None, None, _C.UNKNOWN),
    Ending.ENDED: _columns(_C.UNKNOWN, _C.CANCELLED, _C.CANCELLED, _C.UNKNOWN),
    Ending.SUPERSEDED: _columns(_C.UNKNOWN, _C.SUPERSEDED, _C.SUPERSEDED, _C.UNKNOWN),
}

CLOSED_BY: Final = {
    _C.EXPIRED: _T.EXPIRE,
    _C.SUPERSEDED: _T.SUPERSEDE,
    _C.CANCELLED: _T.CANCEL,
    _C.UNKNOWN: _T.LOSE,
}
"""By which trigger a call is closed as what."""


def _closes_as(outcome: CallState) -> Mapping[CallState | None, CallState]:
    return {s: outcome for s in OPEN_CALLS if any(outcome == row[s] for row in CLOSING.values())}


TURN: Final = Machine(
    "turn",
    TurnState,
    {
        _T.SEND: {TurnState.IDLE: TurnState.OPEN, TurnState.AWAITING: TurnState.OPEN},
        _T.OPEN_NEXT: {TurnState.IDLE: TurnState.OPEN},
        _T.REST: {TurnState.OPEN: TurnState.AWAITING},
        _T.SETTLE: {TurnState.AWAITING: TurnState.OPEN},
        _T.LAPSE: {TurnState.AWAITING: TurnState.OPEN},
        _T.FINISH: {TurnState.OPEN: TurnState.IDLE},
        _T.END: {TurnState.OPEN: TurnState.IDLE, TurnState.AWAITING: TurnState.IDLE},
    },
)
RUN: Final = Machine(
    "run",
    RunState,
    {
        _T.ACQUIRE: {None: RunState.RUNNING},
        _T.REST: {RunState.RUNNING: RunState.FINISHED},
        _T.FINISH: {RunState.RUNNING: RunState.FINISHED},
        _T.RELEASE: {RunState.RUNNING: RunState.RELEASED},
        _T.REPLACE: {RunState.RUNNING: RunState.LOST},
        _T.CLOSE: {RunState.RUNNING: RunState.CLOSED},
    },
)
CALL: Final = Machine(
    "call",
    CallState,
    {
        _T.TOOL_INPUT: {None: _C.RUNNING, _C.RUNNING: _C.RUNNING},
        _T.REQUEST: {_C.RUNNING: _C.AWAITING},
        _T.REISSUE: {_C.AWAITING: _C.AWAITING, _C.APPROVED: _C.AWAITING},
        _T.APPROVE: {_C.AWAITING: _C.APPROVED},
        _T.DENY: {_C.AWAITING: _C.DENIED},
        _T.CLAIM: {_C.APPROVED: _C.EXECUTING},
        _T.OUTPUT: {_C.RUNNING: _C.DONE, _C.EXECUTING: _C.DONE},
        _T.ERROR: {_C.RUNNING: _C.FAILED, _C.APPROVED: _C.FAILED, _C.EXECUTING: _C.FAILED},
        _T.LATE_OUTPUT: {_C.EXECUTING: _C.DONE, _C.UNKNOWN: _C.DONE},
        _T.LATE_ERROR: {_C.EXECUTING: _C.FAILED, _C.UNKNOWN: _C.FAILED},
        _T.RETRY: {_C.UNKNOWN: _C.RUNNING},
        _T.RECLAIM: {_C.UNKNOWN: _C.EXECUTING},
        _T.HAPPENED: {_C.UNKNOWN: _C.DONE},
        _T.DID_NOT_HAPPEN: {_C.UNKNOWN: _C.CANCELLED},
        _T.EXPIRE: {_C.AWAITING: _C.EXPIRED, _C.APPROVED: _C.EXPIRED},
        **{_T(CLOSED_BY[s]): _closes_as(s) for s in (_C.SUPERSEDED, _C.CANCELLED, _C.UNKNOWN)},
    },
)
APPROVAL: Final = Machine(
    "approval",
    ApprovalState,
    {
        _T.REQUEST: {None: _A.PENDING},
        _T.APPROVE: {_A.PENDING: _A.APPROVED},
        _T.DENY: {_A.PENDING: _A.DENIED},
        _T.SETTLE: {_A.PENDING: _A.SUPERSEDED},
        _T.REISSUE: {_A.PENDING: _A.SUPERSEDED, _A.APPROVED: _A.SUPERSEDED},
        _T.EXPIRE: {_A.PENDING: _A.EXPIRED},
        _T.SUPERSEDE: {_A.PENDING: _A.SUPERSEDED},
        _T.CANCEL: {_A.PENDING: _A.CANCELLED},
    },
)
INPUT: Final = Machine(
    "input",
    InputState,
    {
        _T.SEND: {None: InputState.OPENED},
        _T.QUEUE: {None: InputState.QUEUED},
        _T.OPEN_NEXT: {InputState.QUEUED: InputState.OPENED},
        _T.TAKE: {InputState.QUEUED: InputState.ABSORBED},
        _T.EDIT: {InputState.QUEUED: InputState.QUEUED},
        _T.WITHDRAW: {InputState.QUEUED: InputState.CANCELLED},
        _T.CLOSE: {InputState.QUEUED: InputState.CANCELLED},
    },
)

MACHINES: Final = (TURN, RUN, CALL, APPROVAL, INPUT)
