"""What an operation is: a name, the permissions that open it, and one function."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from engine_assistant.context import Context
from engine_assistant.model.commands import Command
from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.store.faults import translated

__all__ = ["Operation"]

C = TypeVar("C", bound=Command)
V = TypeVar("V")

# What looks like the name of a field, an event or a place in a list; other keys may be secrets.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}|[0-9]{1,9}")

_SENTENCES: Final = {
    # What pydantic would say here repeats the value.
    "union_tag_invalid": "is not a type of event",
    "union_tag_not_found": "has no type",
    # And here it speaks the language of pydantic.
    "extra_forbidden": "is not a field of this",
    "missing": "is missing",
    "string_pattern_mismatch": "must be 64 lowercase hexadecimal digits",
}


class Operation(Generic[C, V]):
    """One thing that a host can ask of the engine.

    Attributes:
        name: how it is called over a wire, `assistant/send-message`.
        permissions: the keys of which the caller must hold one.
        command: the model of its input.
        view: the type of its answer.
    """

    def __init__(
        self,
        name: str,
        permissions: Collection[str],
        command: type[C],
        view: type[V],
        body: Callable[[Context, C], V],
        *,
        one_statement: Callable[[C], bool] = lambda _: False,
        reads: bool = False,
    ) -> None:
        """Describe an operation.

        `one_statement` says which commands need no transaction on Postgres; `reads` that nothing
        is ever written.
        """
        self.name = name
        self.permissions = tuple(permissions)
        self.command = command
        self.view = view
        self.one_statement = one_statement
        self.reads = reads
        self._body = body

    def parse(self, values: Mapping[str, object], limits: Limits = LIMITS) -> C:
        """Check an input before anything is asked of the database.

        Raises:
            ValidationFailed: with the path of the first field that is wrong, never its value.
        """
        failure: ValidationFailed
        try:
            return self.command.model_validate(values, context=limits)
        except ValidationError as error:
            failure = _refusal(self.name, error)
        raise failure

    def __call__(self, ctx: Context, command: C) -> V:
        """Do it, for a caller that holds the permission.

        Raises:
            PermissionDenied: the caller holds none of the operation's keys.
        """
        self.admit(ctx)
        with translated():
            return self._body(ctx, command)

    def admit(self, ctx: Context) -> None:
        """Ask for the permission alone. Nothing is asked of the database.

        Raises:
            PermissionDenied: the caller holds none of the operation's keys.
        """
        ctx.require(self.permissions)

    def admitted(self, ctx: Context, command: C) -> V:
        """Do it for a caller that was admitted a moment ago. Errors are translated at the door."""
        return self._body(ctx, command)

    def within(self, ctx: Context, command: C) -> V:
        """Do it for a composing module that has made its own permission checks.

        Who owns a thread, who may decide and who holds the lease are rules, not permissions: they
        hold here too.
        """
        with translated():
            return self._body(ctx.ungated(), command)

    def plain(self, view: V) -> dict[str, object]:
        """Return an answer as plain JSON values."""
        plain: dict[str, object] = TypeAdapter(self.view).dump_python(view, mode="json")
        return plain

    @property
    def input_schema(self) -> dict[str, object]:
        """The JSON Schema of the command."""
        return self.command.model_json_schema()

    @property
    def output_schema(self) -> dict[str, object]:
        """The JSON Schema of the answer."""
        return TypeAdapter(self.view).json_schema()


def _refusal(name: str, error: ValidationError) -> ValidationFailed:
    """Say which field is wrong and how, without a word of what was in it."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    parts = [str(part) for part in first["loc"]]
    path = ".".join(part if _NAME.fullmatch(part) else "*" for part in parts)[:200]
    how = _SENTENCES.get(first["type"], first["msg"].removeprefix("Value error, "))
    return ValidationFailed(f"{name}: {path or 'the input'}: {how}.", path=path)
