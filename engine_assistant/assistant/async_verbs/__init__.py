"""The operations as methods, awaited: by keyword, one for each, each answering a frozen view.

Every method may also raise `PermissionDenied` (the caller lacks the permission), `ValidationFailed`
(an input is wrong), `Raced` (repeat it), `Unavailable` (repeat it with the same key, batch or
attempt: it may have been kept) and `Internal` (a person must look).
"""

from collections.abc import Mapping

from engine_assistant.assistant.async_verbs.history import AsyncHistoryVerbs
from engine_assistant.assistant.async_verbs.person import AsyncPersonVerbs
from engine_assistant.assistant.async_verbs.reading import AsyncReadingVerbs
from engine_assistant.assistant.async_verbs.recovery import AsyncRecoveryVerbs
from engine_assistant.assistant.async_verbs.run import AsyncRunVerbs
from engine_assistant.assistant.async_verbs.turns import AsyncTurnVerbs
from engine_assistant.operations.registry import named_input, named_operation

__all__ = ["AsyncOperations"]


class AsyncOperations(
    AsyncPersonVerbs,
    AsyncTurnVerbs,
    AsyncRunVerbs,
    AsyncRecoveryVerbs,
    AsyncReadingVerbs,
    AsyncHistoryVerbs,
):
    """Everything that one caller can ask of the engine."""

    async def call(self, name: str, values: Mapping[str, object]) -> dict[str, object]:
        """See `Operations.call`."""
        operation = named_operation(name)
        return operation.plain(await self._run(operation, **named_input(values)))
