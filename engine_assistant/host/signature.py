"""The arguments of a tool, as its function declares them.

A call's input is validated once, when the model has proposed it, and written down again as plain
JSON with every default filled in: the *bound* input. That is what is kept, shown and approved, and
the function is given exactly what the bound input says. So an input that does not come back the
same from being read and written again is refused: nobody could say which of the two was approved.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, Protocol, TypeAlias, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from engine_assistant.host.beside import beside
from engine_assistant.host.messages import JsonValue
from engine_assistant.host.whose import ThreadRef
from engine_assistant.model.codec import JsonRefused, check_json, dumps

__all__ = ["Arguments", "ArgumentsRefused", "CallId", "Input", "Signature", "ToolContext"]

Input: TypeAlias = Mapping[str, JsonValue]
"""A bound input: validated arguments as plain JSON. It is never changed."""

_TOLD_ERRORS: Final = 5
_TOLD_LENGTH: Final = 1000


class _CallIdMark:
    """Marks a parameter that takes the call's id."""


CallId: TypeAlias = Annotated[str, _CallIdMark()]
"""A parameter of this type is given the call's id: the key that makes an action happen once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of its call. A parameter of this type is given it.

    Attributes:
        call_id: ours. Give it to whatever must happen once, as its idempotency key.
        step: the number of the model's request that led here.
        thread: for whom the tool works; None where no record keeps the conversation.
        report: tells how far the tool has come, as plain JSON. Await it before you go on.
    """

    call_id: str
    step: int
    thread: ThreadRef | None = None
    report: Callable[[JsonValue], Awaitable[None]] = field(repr=False)


class ArgumentsRefused(Exception):
    """The arguments are not what the tool takes. The text is for the model."""


class Arguments(Protocol):
    """What a tool takes, and the way to it."""

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The JSON Schema of the input, an object."""
        ...

    def bind(self, input: JsonValue) -> dict[str, JsonValue]:
        """Return the bound input. Bound again it must be the same.

        Raises:
            ArgumentsRefused: it is not what the tool takes.
        """
        ...

    async def call(self, input: Input, context: ToolContext) -> object:
        """Run the tool with a bound input, and return what it returned."""
        ...


class _PlainSchema(GenerateJsonSchema):
    """Titles say nothing that names do not, and a tool's version is a digest of its schema."""

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


class Signature:
    """Arguments that come from a Python function."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._names: dict[str, str] = {}
        self._context: list[str] = []
        self._call_id: list[str] = []
        # Fields are numbered, because a parameter may have a name that pydantic itself uses.
        fields: dict[str, tuple[object, FieldInfo]] = {}
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            if parameter.annotation is ToolContext:
                self._context.append(name)
            elif _takes_call_id(parameter.annotation):
                self._call_id.append(name)
            else:
                place = f"argument_{len(fields)}"
                self._names[name] = place
                fields[place] = _field(name, parameter)
        self._model: type[BaseModel] = create_model(
            "Arguments",
            __config__=ConfigDict(extra="forbid", validate_default=True),
            **fields,  # type: ignore[call-overload]
        )
        schema = self._model.model_json_schema(schema_generator=_PlainSchema)
        self._schema: dict[str, JsonValue] = schema
        del self._schema["title"]
        check_json(self._schema)

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The JSON Schema of the input."""
        return self._schema

    def bind(self, input: JsonValue) -> dict[str, JsonValue]:
        """Return the arguments as plain JSON, validated, with defaults filled in."""
        bound = self._written(self._read(input))
        if dumps(self._written(self._read(bound))) != dumps(bound):
            raise ArgumentsRefused("The arguments do not read back the same.")
        return bound

    async def call(self, input: Input, context: ToolContext) -> object:
        """Call the function: a coroutine function here, any other in a thread of its own."""
        read = self._read(dict(input))
        given = {name: getattr(read, place) for name, place in self._names.items()}
        given |= dict.fromkeys(self._context, context)
        given |= dict.fromkeys(self._call_id, context.call_id)
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**given)
        return await beside(partial(self._function, **given))

    def _read(self, input: JsonValue) -> BaseModel:
        try:
            return self._model.model_validate_json(dumps(input))
        except ValidationError as error:
            raise ArgumentsRefused(_told(error)) from None
        except JsonRefused as error:
            raise ArgumentsRefused(error.message) from None

    def _written(self, read: BaseModel) -> dict[str, JsonValue]:
        written = read.model_dump(mode="json", by_alias=True)
        try:
            check_json(written)
        except JsonRefused as error:
            raise ArgumentsRefused(error.message) from None
        return cast("dict[str, JsonValue]", written)


def _takes_call_id(annotation: object) -> bool:
    if get_origin(annotation) is not Annotated:
        return False
    return any(isinstance(mark, _CallIdMark) for mark in get_args(annotation)[1:])


def _field(name: str, parameter: inspect.Parameter) -> tuple[object, FieldInfo]:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"the parameter {name} of a tool cannot be given by name")
    if parameter.annotation is parameter.empty:
        raise TypeError(f"the parameter {name} of a tool needs a type")
    if isinstance(parameter.default, FieldInfo):
        raise TypeError(f"the parameter {name} of a tool: write Annotated[…, Field(…)]")
    default = ... if parameter.default is parameter.empty else parameter.default
    info: FieldInfo = Field(default, alias=name)
    return parameter.annotation, info


def _told(error: ValidationError) -> str:
    """Say what is wrong, field by field. The input is the model's own; it is not repeated."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(str(step) for step in one['loc']) or 'arguments'}: {one['msg']}"
        for one in found[:_TOLD_ERRORS]
    ]
    return "; ".join(told)[:_TOLD_LENGTH]
