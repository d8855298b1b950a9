"""What a machine is: a named table of moves. The tables themselves stand in `machines`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from engine_assistant.model.errors import Internal

__all__ = ["Machine", "Move"]

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Move(Generic[S]):
    """One arrow: in state `source` (None: there is no row yet) `trigger` leads to `target`."""

    trigger: StrEnum
    source: S | None
    target: S


class Machine(Generic[S]):
    """A table `trigger -> source -> target` over one kind of row.

    Attributes:
        name: what the machine is called in documents and errors.
        states: the enum of its states; CHECK constraints are made from it.
        moves: every arrow; diagrams and the test matrix are made from them.
    """

    def __init__(
        self, name: str, states: type[S], table: Mapping[StrEnum, Mapping[S | None, S]]
    ) -> None:
        """Keep the table as a flat tuple of moves."""
        self.name = name
        self.states = states
        self.moves: tuple[Move[S], ...] = tuple(
            Move(trigger, source, target)
            for trigger, row in table.items()
            for source, target in row.items()
        )
        self._table = table

    def allows(self, trigger: StrEnum, source: S | None) -> bool:
        """Return whether `trigger` may happen in `source`."""
        return source in self._table.get(trigger, {})

    def step(self, trigger: StrEnum, source: S | None) -> S:
        """Return the state that `trigger` leads to from `source`.

        Raises:
            Internal: there is no such move. A rule must have refused before it came here.
        """
        if not self.allows(trigger, source):
            raise Internal(
                f"The {self.name} machine has no move from {source} on {trigger}.",
                machine=self.name,
            )
        return self._table[trigger][source]
