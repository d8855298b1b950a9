"""Opaque cursors: where a page ended, bound to the list it belongs to.

A cursor is no secret and no permission; every page asks for its rows by tenant and person again.
The check only tells a cursor of this list from one of another list, or a damaged one.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from engine_assistant.model import codec
from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.fields import MAX_INTEGER
from engine_assistant.model.times import from_text

__all__ = ["read_cursor", "write_cursor"]

Place = Sequence[str | int]
_CHECK: Final = 12


def write_cursor(scope: Sequence[str | None], place: Place) -> str:
    """Return the cursor of `place` in the list that `scope` names."""
    body = codec.dumps(list(place)).encode()
    return base64.urlsafe_b64encode(_check(scope, body) + body).decode().rstrip("=")


def read_cursor(scope: Sequence[str | None], cursor: str, kinds: Sequence[type]) -> list[str | int]:
    """Return the place that a cursor stands for.

    A kind is `str`, `int`, or `datetime` for the text of a time.

    Raises:
        ValidationFailed: it is damaged, or belongs to another list.
    """
    refused = ValidationFailed(
        "This cursor does not belong to this list. Start again without one.", path="cursor"
    )
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refused from None
    check, body = raw[:_CHECK], raw[_CHECK:]
    if check != _check(scope, body):
        raise refused
    try:
        place = codec.loads(body)
        if not isinstance(place, list):
            raise refused
        return [_part(kind, part) for kind, part in zip(kinds, place, strict=True)]
    except ValueError:
        raise refused from None


def _part(kind: type, part: object) -> str | int:
    """Return a part that a column can be compared with.

    Raises:
        ValueError: it is not of its kind. Whoever can compute the check can write any place.
    """
    if kind is int and type(part) is int and 0 <= part <= MAX_INTEGER:
        return part
    if kind is not int and isinstance(part, str) and "\0" not in part:
        if kind is datetime:
            from_text(part)
        return part
    raise ValueError("not a place in this list")


def _check(scope: Sequence[str | None], body: bytes) -> bytes:
    return hashlib.sha256(codec.dumps(list(scope)).encode() + b"\0" + body).digest()[:_CHECK]
