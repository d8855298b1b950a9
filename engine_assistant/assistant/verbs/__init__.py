"""The operations as methods: by keyword, one for each, each answering a frozen view.

Every method may also raise `PermissionDenied` (the caller lacks the permission), `ValidationFailed`
(an input is wrong), `Raced` (repeat it), `Unavailable` (repeat it with the same key, batch or
attempt: it may have been kept) and `Internal` (a person must look).
"""

from collections.abc import Mapping

from engine_assistant.assistant.verbs.history import HistoryVerbs
from engine_assistant.assistant.verbs.person import PersonVerbs
from engine_assistant.assistant.verbs.reading import ReadingVerbs
from engine_assistant.assistant.verbs.recovery import RecoveryVerbs
from engine_assistant.assistant.verbs.run import RunVerbs
from engine_assistant.assistant.verbs.turns import TurnVerbs
from engine_assistant.operations.registry import named_input, named_operation

__all__ = ["Operations"]


class Operations(PersonVerbs, TurnVerbs, RunVerbs, RecoveryVerbs, ReadingVerbs, HistoryVerbs):
    """Everything that one caller can ask of the engine."""

    def call(self, name: str, values: Mapping[str, object]) -> dict[str, object]:
        """Run an operation by name, plain data in and out: for hosts that call over a wire.

        Args:
            name: as in `OPERATIONS`, `"assistant/send-message"`.
            values: its input.

        Raises:
            ValidationFailed: there is no such operation, or its input is wrong.
        """
        operation = named_operation(name)
        return operation.plain(self._run(operation, **named_input(values)))
