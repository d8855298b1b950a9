"""Telling an argument that was not given from one that is None."""

from enum import Enum
from typing import Final

__all__ = ["ABSENT", "Absent", "given"]


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""The default of an argument for which None is a value."""


def given(absent: Absent | None = None, **values: object) -> dict[str, object]:
    """Return the arguments that were given: those that are not `absent`."""
    return {name: value for name, value in values.items() if value is not absent}
