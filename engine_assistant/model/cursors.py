"""Opaque cursors: where a page ended, bound to the list it belongs to.

A cursor is no secret and no permission; every page asks for its rows by tenant and person again.
The check only tells a cursor of this list from one of another list, or a damaged one.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Final

from engine_assistant.model import codec
from engine_assistant.model.errors import ValidationFailed

__all__ = ["read_cursor", "write_cursor"]

Place = Sequence[str | int]
_CHECK: Final = 12


def write_cursor(scope: Sequence[str | None], place: Place) -> str:
    """Return the cursor of `place` in the list that `scope` names."""
    body = codec.dumps(list(place)).encode()
    return base64.urlsafe_b64encode(_check(scope, body) + body).decode().rstrip("=")


def read_cursor(scope: Sequence[str | None], cursor: str, kinds: Sequence[type]) -> list[str | int]:
    """Return the place that a cursor stands for.

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
    place = codec.loads(body)
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds):
        raise refused
    return [part for part in place if isinstance(part, str | int)]


def _check(scope: Sequence[str | None], body: bytes) -> bytes:
    return hashlib.sha256(codec.dumps(list(scope)).encode() + b"\0" + body).digest()[:_CHECK]
