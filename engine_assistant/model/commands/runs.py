"""What is asked about runs: what they do, what they leave behind, and what recovers from it."""

from typing import Self

from pydantic import Field, ValidationInfo, model_validator

from engine_assistant.model import codec
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import Cursor, Fenced, OnThread, Rows
from engine_assistant.model.fields import Count, Flag, Id, Json, Label, Private, Reason, bounds_of
from engine_assistant.model.machines import RunState

__all__ = [
    "GetContext",
    "GetRun",
    "ListRuns",
    "PutContext",
    "RecordOperation",
    "ResolveUnknown",
    "RetryCall",
]


class RecordOperation(Fenced):
    """Say what the run does now."""

    operation_id: Id
    kind: Label
    phase: Label
    step: Id | None = None
    first_output: Flag = False


class ListRuns(OnThread):
    """Page through the runs of a thread, newest first."""

    state: RunState | None = None
    limit: Rows = 50
    cursor: Cursor | None = None


class GetRun(OnThread):
    """Look at one run."""

    fence: Count


class PutContext(Fenced):
    """Keep opaque state of the model's provider for as long as the turn is not over."""

    state: Private = Field(repr=False)


class GetContext(Fenced):
    """Have it back."""


class RetryCall(Fenced):
    """Take the right to run an `unknown` call again, whose tool may run twice.

    A gated call is claimed anew, so what is about to run is given as to a claim.
    """

    call_id: Id
    operation: Label | None = None
    version: Id | None = None
    input: Json = None
    attempt: Count | None = None

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        told = {self.operation is not None, self.version is not None}
        if told != {"input" in self.model_fields_set}:
            raise ValueError("give operation, version and input together, or none of them")
        return self

    @property
    def served(self) -> tuple[str, str, JsonValue] | None:
        """Operation, version and input about to run, if they were given."""
        if self.operation is None or self.version is None:
            return None
        return self.operation, self.version, self.input


class ResolveUnknown(OnThread):
    """Say what became of an `unknown` call."""

    call_id: Id
    happened: Flag
    output: Json = None
    reason: Reason | None = None

    @model_validator(mode="after")
    def _an_output_happened(self, info: ValidationInfo) -> Self:
        if self.output is not None and not self.happened:
            raise ValueError("what did not happen has no output")
        most = bounds_of(info).event_bytes
        if len(codec.dumps(self.output).encode()) > most:
            raise ValueError(f"an output must not be longer than {most} bytes")
        return self
