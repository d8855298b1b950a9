"""What is answered about messages, those that wait too, and about a turn that was given up."""

from engine_assistant.model.events import Event
from engine_assistant.model.fields import Time
from engine_assistant.model.machines import InputState, Priority, WhenBusy
from engine_assistant.model.parts import FilePart
from engine_assistant.model.views import View

__all__ = ["Abandoned", "InputView", "Taken"]


class InputView(View):
    """One message, and what became of it.

    `when_busy`, `priority`, `position` and `joins` are those of a message that waits or waited;
    messages with the same `joins` open in one turn. `text` and `files` are shown while it waits;
    later the log has them, at `first_seq`. Turn and numbers are 0 until a turn holds it.
    """

    input_id: str
    author: str
    key: str | None
    state: InputState
    turn: int
    first_seq: int
    last_seq: int
    when_busy: WhenBusy | None
    priority: Priority
    position: int
    joins: int
    queued_at: Time | None
    text: str | None = None
    files: tuple[FilePart, ...] | None = None


class Taken(View):
    """The messages that the turn took in, as their events. None waited: there are no events."""

    events: tuple[Event, ...]
    interrupt_requested: bool


class Abandoned(View):
    """The turn that was given up, and the number of its turn-error."""

    turn: int
    seq: int
