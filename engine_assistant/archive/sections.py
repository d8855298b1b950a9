"""The sections of an archive: which rows stand in it, in which order, and how a row is a line."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import sqlalchemy as sa

from engine_assistant.archive.format import (
    ApprovalFields,
    CallFields,
    CompactionFields,
    EventFields,
    Fields,
    FileFields,
    InputFields,
    RunFields,
)
from engine_assistant.model import codec
from engine_assistant.model.times import from_text
from engine_assistant.store import tables
from engine_assistant.store.columns import Instant

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """The rows of one table.

    Attributes:
        name: how the section is called where it ends.
        kind: what each of its lines is.
        table: where the rows stand.
        fields: the columns that are carried.
        key: the columns that tell the rows of a thread apart. Lines stand in their order.
        stored: the columns that hold JSON.
    """

    name: str
    kind: str
    table: sa.Table
    fields: type[Fields]
    key: tuple[str, ...]
    stored: tuple[str, ...] = ()

    def line(self, columns: Mapping[str, object]) -> bytes:
        """Return the line of a row as it is stored, whatever stands in it."""
        texts = (f'"{name}":{self._text(name, columns[name])}' for name in self._names)
        return f'{{"{self.kind}":{{{",".join(texts)}}}}}\n'.encode()

    def key_of(self, fields: Fields) -> tuple[int | bytes, ...]:
        """Return by what a row is ordered: identities compare as their bytes."""
        values = (getattr(fields, name) for name in self.key)
        return tuple(value.encode() if isinstance(value, str) else value for value in values)

    def values(self, fields: Fields) -> dict[str, object]:
        """Return the columns to be stored."""
        return {name: self._value(name, getattr(fields, name)) for name in self._names}

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self.fields.model_fields)

    @cached_property
    def _times(self) -> frozenset[str]:
        return frozenset(
            name for name in self._names if isinstance(self.table.c[name].type, Instant)
        )

    def _text(self, name: str, value: object) -> str:
        spliced = name in self.stored and isinstance(value, str)
        return str(value) if spliced else codec.dumps(value)

    def _value(self, name: str, value: object) -> object:
        if isinstance(value, dict):
            return codec.dumps(value)
        if isinstance(value, str) and name in self._times:
            return from_text(value)
        return value


SECTIONS: Final = (
    Section("events", "event", tables.events, EventFields, ("seq",), ("body",)),
    Section("inputs", "input", tables.inputs, InputFields, ("id",), ("body",)),
    Section("calls", "call", tables.tool_calls, CallFields, ("call_id",), ("result",)),
    Section(
        "approvals",
        "approval",
        tables.approvals,
        ApprovalFields,
        ("call_id", "request_seq", "approver_id"),
    ),
    Section("runs", "run", tables.runs, RunFields, ("fence",), ("usage", "operation")),
    Section("files", "file", tables.files, FileFields, ("id",)),
    Section("compactions", "compaction", tables.compactions, CompactionFields, ("n",)),
)
"""In the order in which they stand in an archive."""
