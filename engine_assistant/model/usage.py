"""What a run has used up: figures, each with who says so. Money is exact, as text."""

import re
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from engine_assistant.model import codec
from engine_assistant.model.fields import Natural
from engine_assistant.model.record import Part

__all__ = ["Cost", "Figure", "Provenance", "Usage"]

_AMOUNT: Final = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")


class Provenance(StrEnum):
    """Who says so."""

    REPORTED = "reported"
    """The provider of the model."""
    COMPUTED = "computed"
    """The host, by counting or from a price list."""


def _amount(value: str) -> str:
    if _AMOUNT.fullmatch(value) is None:
        raise ValueError("must be a decimal number of up to 18 digits, and as many after the point")
    return value


def _currency(value: str) -> str:
    if _CURRENCY.fullmatch(value) is None:
        raise ValueError("must be three capital letters")
    return value


class Figure(Part):
    """A number of tokens, 0 to 2^63 - 1."""

    value: Natural
    provenance: Provenance


class Cost(Part):
    """An amount of money: `"0.0125"`, kept as it is written, of `"USD"`."""

    value: Annotated[str, Field(strict=True), AfterValidator(_amount)]
    currency: Annotated[str, Field(strict=True), AfterValidator(_currency)]
    provenance: Provenance


class Usage(Part):
    """What was used up, by a request or by a whole run, as far as it is known: one figure at least.

    Attributes:
        input: tokens that the model was given.
        output: tokens that it wrote.
        reasoning: those of them that it did not show.
        cache_read: tokens of the input that a cache held.
        cache_write: tokens of the input that went into a cache.
        cost: what all of it costs.
    """

    input: Figure | None = None
    output: Figure | None = None
    reasoning: Figure | None = None
    cache_read: Figure | None = None
    cache_write: Figure | None = None
    cost: Cost | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError("must hold one figure at least")
        return self

    @classmethod
    def reported(cls, **tokens: int) -> Self:
        """Return numbers of tokens that the provider told, by the names of the figures.

        Raises:
            ValidationError: there is none, one is no such number, or there is no such figure.
        """
        told = {name: Figure(value=n, provenance=Provenance.REPORTED) for name, n in tokens.items()}
        return cls.model_validate(told)

    def to_dict(self) -> dict[str, JsonValue]:
        """Return what is known, as plain JSON."""
        return self.model_dump(mode="json", exclude_none=True)

    def stored(self) -> str:
        """Return the form in which it is kept: compact JSON, sorted keys, without what is None."""
        return codec.dumps(self.to_dict())
