"""What a run does now, as the record keeps it: for whoever looks while nothing is said.

Three writes, each of its own: when the model is asked, when it first says something, and before a
tool runs. Only the last of them stands in the run.
"""

from functools import partial

from engine_assistant.host.execution import Step
from engine_assistant.host.turns.holding import Holding

__all__ = ["Doing"]


class Doing:
    """Says what one round of a turn does."""

    def __init__(self, holding: Holding, steps: int) -> None:
        self._holding = holding
        self._steps = steps
        self._silent = False

    def name(self, step: Step) -> str:
        """Return what the record calls a step: no two of a thread share it."""
        return f"{self._holding.key['fence']}.{self._steps + step.number}"

    async def asks(self, step: Step) -> None:
        """Say that the model is asked."""
        name = self.name(step)
        await self._say(name, "model", "asked", step=name)
        self._silent = True

    async def hears(self, step: Step) -> None:
        """Say that the model has begun to answer; once for each request."""
        if self._silent:
            self._silent = False
            name = self.name(step)
            await self._say(name, "model", "answering", step=name, first_output=True)

    async def runs(self, call_id: str, *, step: str) -> None:
        """Say that a tool runs, for a call that was proposed in this step."""
        await self._say(call_id, "tool", "running", step=step)

    async def _say(
        self, name: str, kind: str, phase: str, *, step: str, first_output: bool = False
    ) -> None:
        say = partial(self._holding.ops.record_operation, **self._holding.key)
        await self._holding.write(
            partial(
                say,
                operation_id=name,
                kind=kind,
                phase=phase,
                step=step,
                first_output=first_output,
            )
        )
