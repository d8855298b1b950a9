"""What every verb stands on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

from engine_assistant.assistant.watching import watched
from engine_assistant.context import Caller
from engine_assistant.model.commands import Command
from engine_assistant.model.observing import Observer
from engine_assistant.operations.operation import Operation

__all__ = ["AsyncVerbs"]

C = TypeVar("C", bound=Command)
V = TypeVar("V")


class AsyncVerbs(ABC):
    """A caller, and a place where its operations run."""

    def __init__(self, caller: Caller, observer: Observer | None) -> None:
        """Act for a caller, and let somebody look on."""
        self._caller = caller
        self._observer = observer

    async def _run(self, operation: Operation[C, V], /, **values: object) -> V:
        if self._observer is None:
            return await self._perform(operation, values)
        with watched(self._observer, operation.name, self._caller.tenant, values) as watch:
            return watch.answered(await self._perform(operation, values))

    @abstractmethod
    async def _perform(self, operation: Operation[C, V], values: Mapping[str, object]) -> V:
        """Check the input, and run the operation."""
