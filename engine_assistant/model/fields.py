"""The types of single fields: how long, how deep, in what form. Commands and events share them."""

from datetime import datetime
from typing import Annotated, Final, cast

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from engine_assistant.model.codec import check_json
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.model.times import from_text, to_text

__all__ = [
    "MAX_INTEGER",
    "Count",
    "Flag",
    "Id",
    "Json",
    "Label",
    "Message",
    "Moment",
    "Natural",
    "Private",
    "Reason",
    "Sha256",
    "Summary",
    "Time",
    "Title",
    "bounds_of",
    "stored_bytes",
]

MAX_INTEGER: Final = 2**63 - 1
"""The largest number a column holds."""


def bounds_of(info: ValidationInfo) -> Limits:
    """Return the limits in force: those the host gave as validation context, or ours."""
    return info.context if isinstance(info.context, Limits) else LIMITS


def stored_bytes(text: str) -> int:
    """Return how many bytes a text takes when it is stored.

    Raises:
        ValueError: it holds a lone surrogate. Python's own error would quote the character.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("must not hold a lone surrogate") from None


def _bounded(limit: str, *, column: bool) -> AfterValidator:
    """Return a validator that bounds a string by the bytes it takes when stored."""

    def check(value: str, info: ValidationInfo) -> str:
        most: int = getattr(bounds_of(info), limit)
        if not value:
            raise ValueError("must not be empty")
        if len(value) > most or stored_bytes(value) > most:
            raise ValueError(f"must not be longer than {most} bytes of UTF-8")
        if column and "\0" in value:
            raise ValueError("must not hold NUL")
        return value

    return AfterValidator(check)


def _json(value: object, info: ValidationInfo) -> JsonValue:
    """Admit exactly what can be stored and read back byte for byte."""
    limits = bounds_of(info)
    check_json(value, depth=limits.nesting, integer_digits=limits.integer_digits)
    return cast("JsonValue", value)


def _moment(value: str) -> str:
    from_text(value)
    return value


Id = Annotated[str, Field(strict=True), _bounded("id_bytes", column=True)]
"""An identity, compared bytewise: 1 to 128 bytes, no NUL."""

Label = Annotated[str, Field(strict=True), _bounded("id_bytes", column=True)]
"""A short name (a tool, an operation, a reason code): bounded like an id."""

Title = Annotated[str, Field(strict=True), _bounded("title_bytes", column=True)]
Reason = Annotated[str, Field(strict=True), _bounded("reason_bytes", column=True)]
Message = Annotated[str, Field(strict=True), _bounded("message_bytes", column=False)]
"""What a person says. NUL is kept: it lives in JSON, not in a column."""

Summary = Annotated[str, Field(strict=True), _bounded("summary_bytes", column=True)]

Private = Annotated[str, Field(strict=True), _bounded("context_bytes", column=True)]
"""State of the model's provider that nobody is shown: opaque text, no NUL."""

Json = Annotated[JsonValue, PlainValidator(_json), WithJsonSchema({})]
"""Any JSON value that the codec admits: no NaN, no lone surrogate, bounded depth and digits."""

Moment = Annotated[str, Field(strict=True), AfterValidator(_moment)]
"""A time as text, `YYYY-MM-DDTHH:MM:SS.mmmZ`, kept verbatim because digests bind it."""

Time = Annotated[
    datetime,
    PlainSerializer(to_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An aware UTC time; in JSON the 24 bytes that events carry."""

Sha256 = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$")]
Flag = Annotated[bool, Field(strict=True)]
Natural = Annotated[int, Field(strict=True, ge=0, le=MAX_INTEGER)]
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_INTEGER)]
