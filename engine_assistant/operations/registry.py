"""Every operation by name, for hosts that call over a wire."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from engine_assistant.model.commands import Command
from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.views import View
from engine_assistant.operations import (
    approvals,
    calls,
    contexts,
    events,
    files,
    history,
    inputs,
    messages,
    runs,
    seeds,
    threads,
)
from engine_assistant.operations.operation import Operation

__all__ = ["OPERATIONS", "named_input", "named_operation"]

_ALL: Final = (
    threads.CREATE_THREAD,
    threads.GET_THREAD,
    threads.LIST_THREADS,
    threads.CLOSE_THREAD,
    files.AUTHORIZE_FILE_UPLOAD,
    messages.SEND_MESSAGE,
    messages.INTERRUPT_TURN,
    inputs.LIST_INPUTS,
    inputs.EDIT_INPUT,
    inputs.CANCEL_INPUT,
    files.REGISTER_FILE,
    events.READ_EVENTS,
    events.APPEND_EVENTS,
    runs.ACQUIRE_RUN,
    runs.BEAT_RUN,
    runs.RELEASE_RUN,
    runs.RECORD_OPERATION,
    runs.LIST_RUNS,
    runs.GET_RUN,
    contexts.PUT_CONTEXT,
    contexts.GET_CONTEXT,
    inputs.TAKE_INPUTS,
    messages.ABANDON_TURN,
    approvals.REQUEST_APPROVAL,
    approvals.RESOLVE_APPROVAL,
    approvals.LIST_APPROVALS,
    calls.CLAIM_EXECUTION,
    calls.RETRY_CALL,
    calls.SETTLE_EXECUTION,
    calls.RESOLVE_UNKNOWN,
    calls.GET_CALL,
    calls.LIST_CALLS,
    history.HISTORY,
    history.COMPACT,
    history.LIST_COMPACTIONS,
    seeds.SEED_THREAD,
)

OPERATIONS: Final[Mapping[str, Operation[Command, View]]] = MappingProxyType(
    {operation.name: cast("Operation[Command, View]", operation) for operation in _ALL}
)
"""The gated operations. `OPERATIONS[name].within(ctx, command)` is the same body ungated."""


def named_operation(name: object) -> Operation[Command, View]:
    """Return the operation of that name.

    Raises:
        ValidationFailed: there is none.
    """
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        raise ValidationFailed("There is no operation of this name.", path="name")
    return operation


def named_input(values: object) -> Mapping[str, object]:
    """Return the input of a call by name, if it is an object.

    Raises:
        ValidationFailed: it is not, or a key of it is not a string.
    """
    if isinstance(values, Mapping) and all(isinstance(key, str) for key in values):
        return values
    raise ValidationFailed("The input must be an object whose keys are strings.", path="")
