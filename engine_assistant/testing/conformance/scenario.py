"""What a scenario is: one short play, and the guarantees that it shows."""

from collections.abc import Callable
from dataclasses import dataclass

from engine_assistant.testing.conformance.setup import Names, Setup
from engine_assistant.testing.conformance.stage import Stage

__all__ = ["Scenario", "shows"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One short play.

    Attributes:
        name: what it shows, as one word.
        guarantees: their numbers in `docs/guarantees.md`.
        does: the play itself.
    """

    name: str
    guarantees: tuple[str, ...]
    does: Callable[[Stage], None]

    def __str__(self) -> str:
        return self.name

    @property
    def room(self) -> str:
        """The room that it stands in."""
        return self.does.__module__.rpartition(".")[2]

    def play(self, setup: Setup, names: Names | None = None) -> None:
        """Play it, in a tenant of its own.

        Raises:
            AssertionError: what came is not what must come; it says both.
            AssistantError: the engine refused what it must allow.
            pytest.skip.Exception: this setup cannot show it; the reason says why.
        """
        self.does(Stage(setup, names or Names(), self.name))


def shows(*guarantees: str) -> Callable[[Callable[[Stage], None]], Scenario]:
    """Make a scenario of a function, whose name becomes the scenario's."""

    def made(does: Callable[[Stage], None]) -> Scenario:
        return Scenario(does.__name__, guarantees, does)

    return made
