"""Messages that wait, in other hands: their owner edits or takes them back, a run takes them in."""

from dataclasses import replace

from engine_assistant.model.commands.inputs import EditInput, TakeInputs
from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.machines import INPUT, InputState, Trigger, TurnState, WhenBusy
from engine_assistant.model.parts import FilePart
from engine_assistant.model.rows import InputRow, Plan
from engine_assistant.model.views.inputs import Taken
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.queue import leave, message_of
from engine_assistant.rules.runs import refuse_fenced, renew
from engine_assistant.rules.turns import no_turn_open, refuse_closed

__all__ = ["cancel_input", "edit_input", "take_inputs"]


def take_inputs(draft: Draft, command: TakeInputs) -> Plan[Taken]:
    """Take every steering message that waits into the open turn, in order.

    Raises:
        Conflict: `thread_closed`, `run_fenced`, `no_turn_open`.
    """
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    if draft.thread.turn_state is not TurnState.OPEN:
        raise no_turn_open()
    for row in draft.queued_inputs():
        if row.when_busy is WhenBusy.STEER:
            seq = draft.record(message_of(row), row.body, admitted=True)
            turn = draft.thread.turn
            leave(draft, row, Trigger.TAKE, turn=turn, first_seq=seq, last_seq=seq)
    renew(draft)
    stopping = draft.thread.interrupt_requested_at is not None
    return draft.plan(Taken(events=tuple(draft.recorded), interrupt_requested=stopping))


def cancel_input(draft: Draft, row: InputRow) -> Plan[InputRow]:
    """Take a message back. Taking it back again changes nothing.

    Raises:
        Conflict: `input_settled`, when a turn holds it.
    """
    if row.state is InputState.CANCELLED:
        return draft.plan(row)
    _refuse_settled(row)
    return draft.plan(leave(draft, row, Trigger.WITHDRAW))


def edit_input(
    draft: Draft, command: EditInput, row: InputRow, files: tuple[FilePart, ...] | None
) -> Plan[InputRow]:
    """Say a message in other words. Its place in line and its key stay.

    The key stands for what was sent first, so that a lost answer can still be asked for again.

    Raises:
        ValidationFailed: its event would be too long.
        Conflict: `input_settled`, when a turn holds it, or it was taken back.
    """
    _refuse_settled(row)
    said = message_of(row)
    kept = said.files if command.attachment_ids is None else files
    message = said.model_copy(update={"text": command.text, "files": kept})
    edited = replace(row, state=INPUT.step(Trigger.EDIT, row.state), body=draft.bounded(message))
    draft.put(edited)
    return draft.plan(edited)


def _refuse_settled(row: InputRow) -> None:
    if row.state is not InputState.QUEUED:
        raise Conflict(
            ConflictReason.INPUT_SETTLED,
            "This message does not wait any more.",
            input_id=row.id,
            state=row.state.value,
            turn=row.turn,
        )
