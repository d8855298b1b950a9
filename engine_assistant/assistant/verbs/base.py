"""What every verb stands on."""

from abc import ABC, abstractmethod
from typing import TypeVar

from engine_assistant.model.commands import Command
from engine_assistant.operations.operation import Operation

__all__ = ["Verbs"]

C = TypeVar("C", bound=Command)
V = TypeVar("V")


class Verbs(ABC):
    """A caller, and a place where its operations run."""

    @abstractmethod
    def _run(self, operation: Operation[C, V], /, **values: object) -> V:
        """Check the input, and run the operation."""
