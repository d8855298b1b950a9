"""What is answered about runs: how one stands or ended, what it does, and its private context."""

from pydantic import Field

from engine_assistant.model import codec
from engine_assistant.model.fields import Time
from engine_assistant.model.machines import RunState
from engine_assistant.model.usage import Usage
from engine_assistant.model.views import View

__all__ = ["ContextSize", "ContextView", "RunOperation", "RunView"]


class RunOperation(View):
    """The last thing that a run said it was doing.

    `started_at` and `first_output_at` are the engine's: when this `operation_id` was first
    recorded, and when it was first recorded to have put something out.
    """

    operation_id: str
    kind: str
    phase: str
    step: str | None
    started_at: Time
    first_output_at: Time | None

    def stored(self) -> str:
        """Return the form in which it is kept: compact JSON, sorted keys."""
        return codec.dumps(self.model_dump(mode="json"))


class RunView(View):
    """One holding of the lease, and what is known of it.

    A run that has ended has `ended_at` and a `reason`: that of the event that rested its turn
    (`done`, `awaiting-approval` …, `error`), `released`, or how somebody else ended it
    (`replaced`, `interrupted`, `superseded`, `abandoned`, `closed`). A live one has neither, and
    `lease_until`. `turn` is 0, and `reason` None, for a run that an older release recorded.
    `head_seq` is the number of the thread's newest event when this was read, in one statement.
    """

    thread_id: str
    fence: int
    run_id: str
    state: RunState
    turn: int
    started_at: Time
    ended_at: Time | None
    reason: str | None
    lease_until: Time | None
    interrupt_requested_at: Time | None
    usage: Usage | None
    operation: RunOperation | None
    head_seq: int


class ContextSize(View):
    """How many bytes of private context are kept now."""

    bytes: int


class ContextView(View):
    """The private context of the turn, for the run that holds its lease. None is kept: all None.

    `fence` is that of the run that put it there. What it holds is not shown by `repr`.
    """

    state: str | None = Field(repr=False)
    fence: int | None
    updated_at: Time | None
