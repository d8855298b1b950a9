"""Who records: the platform's process, the owner of the threads, and the tools that are gated."""

from collections.abc import Callable
from dataclasses import dataclass

from engine_assistant import RUN, USE, Assistant, Caller
from engine_assistant.cli.replay.script import Call
from engine_assistant.model.codec import JsonValue

__all__ = ["Execute", "Host", "recorded_output"]

Execute = Callable[[str, Call], JsonValue]
"""Runs a gated tool, given the conversation's id and the call; called once for each claim."""


def recorded_output(_conversation: str, call: Call) -> JsonValue:
    """Return what the tool returned when the conversation was recorded."""
    return call.output


@dataclass(frozen=True, slots=True)
class Host:
    """A platform that records conversations into the threads of one owner.

    Attributes:
        assistant: the engine over its database.
        owner: the person; sends the messages and approves.
        process: the system principal; writes the assistant's side and runs the tools.
        gated: the names of the tools that need approval.
        execute: runs a gated tool.
    """

    assistant: Assistant
    owner: Caller
    process: Caller
    gated: frozenset[str] = frozenset()
    execute: Execute = recorded_output

    @classmethod
    def of(
        cls,
        assistant: Assistant,
        tenant: str,
        owner: str,
        gated: frozenset[str],
        execute: Execute = recorded_output,
    ) -> "Host":
        """Name the two principals.

        Raises:
            ValidationFailed: the tenant or the owner is no id.
        """
        return cls(
            assistant,
            Caller(tenant, owner, {USE}, channel="replay"),
            Caller(tenant, "sys_replay", {RUN}, system=True),
            gated,
            execute,
        )

    def gates(self, call: Call) -> bool:
        """Return whether a call needs approval: a gated tool that did run in the recording."""
        return call.answered and call.tool in self.gated
