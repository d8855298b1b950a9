"""One codec at the door: every JSON value that enters is checked and serialised once.

``check_json`` says whether a Python value is JSON that can be kept for ever, ``dumps`` writes it in
the one stored form, and ``loads`` reads text from outside (files, tests) just as strictly. What
they admit reads back unchanged on every database; what they refuse never reaches one.

A refusal says where and why. It never repeats a value, because refusals end up in logs.
"""

import json
import json.encoder
import math
import re
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeAlias

from pydantic import JsonValue

from engine_assistant.model.errors import ValidationFailed

__all__ = [
    "MAX_DEPTH",
    "MAX_INTEGER_DIGITS",
    "MAX_SIZE",
    "JsonRefused",
    "JsonTooLarge",
    "JsonValue",
    "check_json",
    "dumps",
    "loads",
]

MAX_DEPTH: Final = 64
"""Lists and objects that may stand inside each other; a bare string or number has depth 0."""

MAX_INTEGER_DIGITS: Final = 1_000
"""Decimal digits of an integer, its sign not counted."""

MAX_SIZE: Final = 4 * 1024 * 1024
"""Bytes that one checked value may take when it is written."""

_PATH_LENGTH: Final = 160
_TYPE_NAME_LENGTH: Final = 40
_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
# A string (one that never ends too, so that no character is scanned twice), or one bracket.
_NESTING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{])|([\]}])', re.DOTALL)

# Where a value stands: the place of its container, and its key or index there; None is no place.
_Place: TypeAlias = "tuple[_Place, object] | None"


class JsonRefused(ValidationFailed, ValueError):
    """A value is not JSON that can be kept.

    A ``ValidationFailed`` to whoever calls us, and a ``ValueError`` to pydantic, which reports it
    with the field that it is about.

    ``path`` is like a JSON pointer, ``/order/items/3``, and empty for the whole value. A key that
    does not look like a field name shows as ``*`` and a long path is cut, so that text or a secret
    used as a key stays out of logs. ``reason`` is one of a few fixed sentences.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason, path=path)
        self.reason = reason
        self.path = path


class JsonTooLarge(JsonRefused):
    """It may well be JSON, but it is more than may be kept."""


def check_json(
    value: object,
    *,
    depth: int = MAX_DEPTH,
    integer_digits: int = MAX_INTEGER_DIGITS,
    size: int = MAX_SIZE,
) -> None:
    """Accept a JSON value, or raise ``JsonRefused``.

    Accepted are ``dict`` with ``str`` keys, ``list``, ``str``, ``int``, ``float``, ``bool`` and
    ``None``, of exactly these types. A subclass is refused: it may answer differently to this check
    and to the writer (its own ``items``, its own ``__repr__``), and what was checked must be what
    is stored. Tuples are refused because they would come back as lists.

    Refused are also NaN and infinities, lone surrogates in strings and keys, more than ``depth``
    containers inside each other (a cycle never ends, so it is caught here), integers of more than
    ``integer_digits`` digits, and a value that cannot fit into ``size`` bytes. The last is a lower
    bound, counted on the way: it stops a small Python value that holds one list many times over,
    whose text would grow without end. The exact size is known only after ``dumps``.
    """
    # Each item takes a character and a comma at least; only the top has no comma.
    room = size + 1
    # Last in, first out: a cycle runs straight into the depth limit instead of fanning out.
    stack: list[tuple[Iterable[object], _Place, int]] = [((value,), None, 0)]
    while stack:
        container, here, level = stack.pop()
        items: Iterable[tuple[object, object]]
        if type(container) is dict:
            room -= _check_keys(container, here)
            items = container.items()
        else:
            items = enumerate(container)
        for step, item in items:
            room -= 2
            if type(item) is str:
                room -= len(item)
                if not item.isascii() and _has_lone_surrogate(item):
                    _refuse("a string holds a lone surrogate", (here, step))
            elif type(item) is dict or type(item) is list:
                if level == depth:
                    _refuse(f"nested deeper than {depth}", (here, step))
                stack.append((item, (here, step), level + 1))
            else:
                room -= _check_atom(item, (here, step), integer_digits)
        if room < 0:
            _refuse(f"larger than {size} bytes", here, JsonTooLarge)


def _check_keys(members: dict[object, object], here: _Place) -> int:
    """Return how many characters the keys take."""
    length = 0
    for key in members:
        if type(key) is not str:
            _refuse("a key is not a string", here)
        if not key.isascii() and _has_lone_surrogate(key):
            _refuse("a key holds a lone surrogate", here)
        length += len(key)
    return length


def _check_atom(item: object, place: _Place, integer_digits: int) -> int:
    """Return how many characters it takes beyond the one that every item has, at least."""
    if type(item) is int:
        bits = item.bit_length()
        # Three bits are less than a digit, so most integers need no count. Never str(): Python
        # itself refuses to write a long integer, with an error of its own.
        if bits > 3 * integer_digits and abs(item) >= 10**integer_digits:
            _refuse(f"an integer of more than {integer_digits} digits", place)
        return max(bits - 1, 0) * 3 // 10
    if type(item) is float:
        if not math.isfinite(item):
            _refuse("a number that is not finite", place)
    elif item is not None and type(item) is not bool:
        kind = type(item).__name__[:_TYPE_NAME_LENGTH]
        _refuse(f"not JSON (the Python type {kind})", place)
    return 0


def _has_lone_surrogate(text: str) -> bool:
    # In a Python string every surrogate is a lone one, and UTF-8 has no form for it.
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse(reason: str, place: _Place, kind: type[JsonRefused] = JsonRefused) -> NoReturn:
    steps: list[str] = []
    while place is not None:
        place, step = place
        if type(step) is int:
            steps.append(str(step))
        else:
            steps.append(str(step) if _FIELD_NAME.fullmatch(str(step)) else "*")
    # The last step is the value's own place in the one-item container that check_json begins with.
    path = "".join(f"/{step}" for step in reversed(steps[:-1]))
    if len(path) > _PATH_LENGTH:
        path = path[: _PATH_LENGTH - 3] + "..."
    raise kind(reason, path)


def _not_json(item: object) -> NoReturn:
    raise JsonRefused(f"not JSON (the Python type {type(item).__name__[:_TYPE_NAME_LENGTH]})")


def _build_writer() -> Callable[[object], str]:
    """One writer for the life of the process; ``json.dumps`` with options builds one per call."""
    build = getattr(json.encoder, "c_make_encoder", None)
    if build is None:  # An interpreter without the C part of json: slower, the same text.
        return json.JSONEncoder(
            ensure_ascii=False,
            check_circular=False,
            allow_nan=False,
            sort_keys=True,
            separators=(",", ":"),
            default=_not_json,
        ).encode
    chunks = build(
        markers=None,
        default=_not_json,
        encoder=json.encoder.encode_basestring,
        indent=None,
        key_separator=":",
        item_separator=",",
        sort_keys=True,
        skipkeys=False,
        allow_nan=False,
    )
    join = "".join

    def write(value: object) -> str:
        return join(chunks(value, 0))

    return write


_write: Final = _build_writer()


def dumps(value: object) -> str:
    r"""Write a value that ``check_json`` has accepted, in the one form that is stored.

    Compact, keys sorted by code point, characters as they are (only what JSON demands is escaped,
    so NUL stays ``\u0000``), integers exact, floats in the shortest form that reads back equal.
    Raises ``JsonRefused`` for what cannot be written at all.
    """
    try:
        return _write(value)
    except RecursionError:
        raise JsonRefused("nested too deeply") from None
    except JsonRefused:
        raise
    except (TypeError, ValueError):
        raise JsonRefused("not JSON (a key or a number that cannot be written)") from None


def loads(
    text: str | bytes,
    *,
    depth: int = MAX_DEPTH,
    integer_digits: int = MAX_INTEGER_DIGITS,
) -> JsonValue:
    """Read JSON text (bytes are UTF-8), or raise ``JsonRefused``.

    Stricter than the standard library: ``NaN`` and ``Infinity``, a number too large for a double
    (``1e400``), a key given twice, lone surrogates, a byte order mark, too many digits and too deep
    a nesting are refused. The depth is counted before parsing, so that no text, however deep,
    depends on the recursion limit of the process.
    """

    def integer(digits: str) -> int:
        if len(digits.removeprefix("-")) > integer_digits:
            raise JsonRefused(f"an integer of more than {integer_digits} digits")
        return int(digits)

    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise JsonRefused(f"not UTF-8 at byte {error.start}") from None
    _check_nesting(text, depth)
    try:
        value: JsonValue = json.loads(
            text,
            parse_int=integer,
            parse_constant=_constant,
            object_pairs_hook=_members,
        )
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise JsonRefused(f"not JSON text at {at}") from None
    except JsonRefused:
        raise
    except RecursionError:
        raise JsonRefused("nested too deeply") from None
    except ValueError:  # int() of a process that allows fewer digits than we do.
        raise JsonRefused("an integer of too many digits") from None
    # Surrogates and 1e400 are found here. Text holds nothing twice, so it bounds its own size.
    check_json(value, depth=depth, integer_digits=integer_digits, size=len(text))
    return value


def _check_nesting(text: str, depth: int) -> None:
    if text.count("[") + text.count("{") <= depth:
        return
    level = 0
    for token in _NESTING.finditer(text):
        if token[1]:
            level += 1
            if level > depth:
                raise JsonRefused(f"nested deeper than {depth}")
        elif token[2]:
            level -= 1


def _constant(_name: str) -> NoReturn:
    raise JsonRefused("a number that is not finite")


def _members(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonRefused("a key is given twice")
    return members
