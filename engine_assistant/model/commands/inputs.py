"""What is asked about messages: sending one, and what becomes of those that wait."""

from typing import Annotated, Final

from pydantic import Field

from engine_assistant.model.commands import Cursor, Fenced, OnThread, Rows
from engine_assistant.model.fields import Count, Flag, Id, Message, Reason
from engine_assistant.model.machines import InputState, Priority, WhenBusy

__all__ = [
    "ABANDONED",
    "AbandonTurn",
    "CancelInput",
    "EditInput",
    "ListInputs",
    "SendMessage",
    "TakeInputs",
]

ABANDONED: Final = "abandoned"
"""The code of the turn-error of a turn that was given up."""

Attachments = Annotated[tuple[Id, ...], Field(max_length=100)]
"""Files of the thread that go with a message."""


class SendMessage(OnThread):
    """Say something, and open the assistant's turn, now or when it is free."""

    text: Message
    attachment_ids: Attachments | None = None
    key: Id | None = None
    supersede_approvals: Flag = False
    when_busy: WhenBusy = WhenBusy.REFUSE
    priority: Priority = Priority.NORMAL
    coalesce: Flag = False


class ListInputs(OnThread):
    """Page through the messages of a thread in the order in which they are taken up."""

    state: InputState | None = None
    limit: Rows = 50
    cursor: Cursor | None = None


class CancelInput(OnThread):
    """Take a message back that waits."""

    input_id: Id


class EditInput(OnThread):
    """Say a message that waits in other words."""

    input_id: Id
    text: Message
    attachment_ids: Attachments | None = None


class TakeInputs(Fenced):
    """Take the steering messages that wait into the open turn."""


class AbandonTurn(OnThread):
    """Give a turn up that nobody will finish."""

    reason: Reason
    fence: Count | None = None
    turn: Count | None = None
