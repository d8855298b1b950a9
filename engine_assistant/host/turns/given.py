"""What turns are run with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine_assistant import AsyncAssistant, Caller
from engine_assistant.host.conversation import MAX_STEPS, System
from engine_assistant.host.hooks import Hooks
from engine_assistant.host.model import Model
from engine_assistant.host.observing import HostObserver
from engine_assistant.host.registry import ToolRegistry
from engine_assistant.host.turns.gate import Approvals, Ready, owner_within_a_day
from engine_assistant.host.turns.writing import Batching
from engine_assistant.model.limits import LIMITS

__all__ = ["Given"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What a host is given, and each of its turns sees.

    Attributes:
        assistant: the record.
        caller: a system principal with `assistant:run`.
        model: whom to ask.
        tools: what the model may call.
        system: what the model is told beside the conversation.
        settings: handed to the model's client.
        max_steps: requests to the model that one turn may take, whoever runs it.
        budget: bytes of history that the model is given; None is all of it.
        hooks: the host's own. `next_messages` is not asked: what the person says comes from the
            record alone.
        approvals: says whom to ask about a call, and for how long. Asked again when it is asked
            anew. The default is the thread's owner, for a day.
        ready: raises if an approved call cannot run now; then it is not claimed.
        stale_after: seconds after which another run may take over from one that is silent.
        max_lost_runs: runs of one turn that may fall silent one after the other, as when the
            turn kills its process; the next one ends it.
        batching: how long deltas may be held back.
        show_reasoning: write the model's reasoning into the log, as far as its provider tells.
        observer: looks on, at each turn, each request and each tool.

    Raises:
        ValueError: it can never work.
    """

    assistant: AsyncAssistant
    caller: Caller
    model: Model
    tools: ToolRegistry = field(default_factory=lambda: ToolRegistry([]))
    system: System | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    max_steps: int = MAX_STEPS
    budget: int | None = None
    hooks: Hooks = field(default_factory=Hooks)
    approvals: Approvals = owner_within_a_day
    ready: Ready | None = None
    stale_after: float = 15.0
    max_lost_runs: int = 5
    batching: Batching = field(default_factory=Batching)
    show_reasoning: bool = False
    observer: HostObserver | None = None

    def __post_init__(self) -> None:
        """Refuse what would break every turn."""
        for name in ("max_steps", "max_lost_runs"):
            number = getattr(self, name)
            if type(number) is not int or not 1 <= number < LIMITS.page:
                raise ValueError(f"a host: {name} must be an int of 1 to {LIMITS.page - 1}")
