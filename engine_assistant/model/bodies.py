"""How an event is stored: compact JSON, its keys sorted, what holds its default left out."""

from functools import cache
from json.encoder import encode_basestring
from typing import Final

from engine_assistant.model import codec
from engine_assistant.model.record import Recorded

__all__ = ["stored_form"]

_UNLIKE: Final = object()
"""The default of a field that has none: no value is equal to it."""


@cache
def _members(kind: type[Recorded]) -> tuple[tuple[str | None, str, object], ...]:
    """Return a kind's own fields in order: name, how its member begins, default.

    The type has no name here, and its member is whole: it is the same in every event.
    """
    own = sorted(kind.model_fields.keys() - Recorded.model_fields.keys())
    fields = [(name, kind.model_fields[name]) for name in own]
    return tuple(
        (None, f'"type":"{field.default}"', _UNLIKE)
        if name == "type"
        else (name, f'"{name}":', _UNLIKE if field.is_required() else field.default)
        for name, field in fields
    )


def stored_form(event: Recorded, *, plain: bool) -> str:
    """Return an event as it is stored, without its number, turn and time.

    Nearly everything that is written is a plain event. It holds JSON values alone, so it is
    written field by field, in a third of the time.
    """
    if not plain:
        fields = event.__pydantic_serializer__.to_python(event, exclude_defaults=True)
        return codec.dumps({**fields, "type": event.__dict__["type"]})
    values = event.__dict__
    parts = []
    for name, begin, default in _members(type(event)):
        if name is None:
            parts.append(begin)
        elif (value := values[name]) != default:
            # Most are texts, and need no encoder that could write anything.
            text = encode_basestring(value) if type(value) is str else codec.dumps(value)
            parts.append(begin + text)
    return "{" + ",".join(parts) + "}"
