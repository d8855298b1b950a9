"""Every field of every operation, given every kind of nonsense: refused, and nothing is asked.

The nonsense carries a marker. Neither the error nor anything it is chained to may repeat it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from sqlalchemy import event

from engine_assistant import OPERATIONS, AssistantError, ValidationFailed
from tests.rig.stage import Play, Values, dump, everything_said

MARKER = "hunter2"
LONE = f"{MARKER}\ud800"


class Odd:
    """Not a value of any field, and loud about it."""

    def __repr__(self) -> str:
        return MARKER


def _deep(levels: int) -> object:
    value: object = MARKER
    for _ in range(levels):
        value = [value]
    return value


def _text(limit: int, *, nul: bool = True) -> tuple[object, ...]:
    """Answer strings that are empty, too long in bytes, or cannot be kept; and other types."""
    filler = MARKER * (limit // len(MARKER) + 1)
    edge = "é" * (limit // 2) + ("a" if limit % 2 == 0 else "é")
    strings = ("", filler, edge, "😀" * (limit // 4 + 1), LONE)
    others = (None, True, 7, 1.5, MARKER.encode(), [MARKER], {MARKER: MARKER}, Odd())
    return (*strings, *others, *((f"{MARKER}\0", "\0") if nul else ()))


def _whole(least: int) -> tuple[object, ...]:
    numbers = (least - 1, -1, -(10**5000), 2**63, 2**64, 10**5000)
    others = (None, True, False, 1.0, 1.5, "1", MARKER, float("nan"), float("inf"), [1], Odd())
    return (*numbers, *others)


_SECONDS = (
    *(0, 0.0, -1, -0.5, 1e400, float("nan"), 10**5000, 1e308, 366 * 86400 + 1),
    *(None, True, "15", MARKER, [1.0], Odd()),
)
_FLAG = (None, 0, 1, "true", MARKER, [], Odd())
_WORD = ("", MARKER, LONE, "OPEN", 0, True, [MARKER], Odd())
_AMOUNT = (
    *(
        "",
        "-1",
        "+1",
        "1.",
        ".5",
        "01",
        "1e3",
        "1,5",
        " 1",
        "1\n",
        "NaN",
        "Infinity",
        "0x1",
        "\uff11",
    ),
    *("9" * 19, "0." + "9" * 19, "1" * 5000, MARKER, LONE, None, 1, 1.5, True, [1], Odd()),
)
_CURRENCY = (
    "",
    "usd",
    "US",
    "USDX",
    "U5D",
    "US\n",
    "\uff35SD",
    "$",
    MARKER,
    LONE,
    None,
    840,
    Odd(),
)
_DIGEST = (
    *("", MARKER, LONE, "a" * 63, "a" * 65, "A" * 64, "a" * 63 + "g", "a" * 64 + "\n"),
    *(None, 7, True, b"a" * 64, Odd()),
)
_CURSOR = ("", MARKER, LONE, "é", "a" * 4097, "=", "AAAA", 7, True, [MARKER], Odd())
_JSON = (
    *(float("nan"), float("inf"), -float("inf"), [1e400], {"a": float("nan")}),
    *(LONE, [LONE], {LONE: 1}, {"a": {LONE: 1}}),
    *({1: MARKER}, {None: MARKER}, {b"a": 1}, {"a": {2: 1}}),
    *(_deep(65), _deep(5000), 10**1000, -(10**5000), [10**5000]),
    *((MARKER,), {MARKER}, MARKER.encode(), Odd(), [Odd()]),
)
_IDS = (MARKER, 7, True, [""], [None], [7], [f"{MARKER}\0"], [MARKER * 20], [LONE], [[MARKER]])
_EVENTS = (
    *(None, [], MARKER, 7, {"type": "text-delta", "text": MARKER}),
    *([None], [MARKER], [[MARKER]], [{}], [{"type": MARKER}], [{"type": [MARKER]}], [Odd()]),
    [{"type": "unknown", "name": MARKER, "body": {MARKER: MARKER}}],
    [{"type": "text-delta", "text": MARKER}, {"type": "text-delta", "text": None}],
)
_SAID = {"role": "user", "text": MARKER}
_MESSAGES = (
    *(None, [], MARKER, 7, True, _SAID, [None], [MARKER], [[MARKER]], [Odd()], [{}]),
    *([{"role": "user"}], [{"text": MARKER}], [{**_SAID, "more": MARKER}]),
    *([{**_SAID, "role": role}] for role in (MARKER, "system", "tool", "", None, 7)),
    *([_SAID, {**_SAID, "text": text}] for text in ("", LONE, None, 7, MARKER * 10_000)),
    *([_SAID] * 257, [{**_SAID, "text": "é" * 30_000}] * 100, [{**_SAID, "text": "\0" * 50_000}]),
)
_FAILURE = (
    *(MARKER, 7, True, [MARKER], {}, {"code": MARKER}, {"message": MARKER}, Odd()),
    *({"code": "", "message": MARKER}, {"code": MARKER, "message": MARKER * 400}),
    {"code": MARKER, "message": MARKER, "more": MARKER},
)

ID, TITLE, REASON = _text(128), _text(1024), _text(2048)
MESSAGE = _text(64 * 1024, nul=False)

_FIGURE = {"value": 1, "provenance": "reported"}
_MONEY = {"value": "1.5", "currency": "USD", "provenance": "computed"}
_USAGE = (
    *(MARKER, 7, True, [MARKER], {}, {"input": None}, {MARKER * 10: _FIGURE}, Odd()),
    *({"input": {**_FIGURE, "value": value}} for value in _whole(0)),
    *({"output": {**_FIGURE, "provenance": word}} for word in _WORD),
    *({"reasoning": _FIGURE, "cost": {**_MONEY, "value": value}} for value in _AMOUNT),
    *({"cost": {**_MONEY, "currency": value}} for value in _CURRENCY),
    *({"cost": {key: _MONEY[key] for key in _MONEY if key != lacks}} for lacks in _MONEY),
    *({"cache_read": figure} for figure in (MARKER, 7, {}, {"value": 1}, {**_FIGURE, "of": 1})),
)

NONSENSE: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys(("operation_id", "kind", "phase", "step"), ID),
    **dict.fromkeys(("happened", "first_output"), _FLAG),
    "usage": _USAGE,
    **dict.fromkeys(
        ("thread_id", "call_id", "run_id", "input_id", "key", "version", "subject", "operation"),
        ID,
    ),
    "content_type": ID,
    "title": TITLE,
    "filename": TITLE,
    "reason": REASON,
    "why": REASON,
    "text": MESSAGE,
    "summary": _text(256 * 1024),
    "messages": _MESSAGES,
    **dict.fromkeys(("fence", "batch", "attempt", "claimed_fence", "required", "turn"), _whole(1)),
    **dict.fromkeys(("from_seq", "to_seq", "budget"), _whole(1)),
    **dict.fromkeys(("after", "size", "expected_head"), _whole(0)),
    **dict.fromkeys(("limit", "last"), (*_whole(1), 1001, 2**63 - 1)),
    "stale_after": (*_SECONDS, 0.009, 3600.1),
    "expires_in": _SECONDS,
    **dict.fromkeys(("approved", "supersede_approvals", "reissue", "coalesce"), _FLAG),
    **dict.fromkeys(("status", "state", "when_busy", "priority"), _WORD),
    **dict.fromkeys(("digest", "sha256"), _DIGEST),
    "cursor": _CURSOR,
    **dict.fromkeys(("input", "output"), _JSON),
    "attachment_ids": (*_IDS, [MARKER] * 101),
    "approvers": (*_IDS, [], [f"{MARKER}{n}" for n in range(21)]),
    "events": _EVENTS,
    "error": _FAILURE,
}
"""For each field, what it must not be. `None` is left out where a field may be left out."""

NONSENSE_OF: Final[Mapping[tuple[str, str], tuple[object, ...]]] = {
    ("assistant/put-context", "state"): _text(1024 * 1024),
}
"""Where a field of one operation is another than that of the same name elsewhere."""


def _wrong(play: Play, name: str) -> Iterator[tuple[str, Values]]:
    """Walk the inputs of one operation that are wrong in exactly one place."""
    right = play.right(name)
    for field, info in OPERATIONS[name].command.model_fields.items():
        if info.is_required():
            yield f"without {field}", {key: right[key] for key in right if key != field}
        for at, value in enumerate(NONSENSE_OF.get((name, field), NONSENSE[field])):
            if value is None and not info.is_required():
                continue
            values = {**right, field: value}
            if field == "last":
                values = {key: values[key] for key in values if key not in ("after", "limit")}
            if field == "error":
                del values["output"]
            yield f"{field} #{at}", values
    yield "an unknown field", {**right, "surprise": MARKER}
    yield "a field that is no name", {**right, f"{MARKER} {MARKER}": MARKER}
    yield "a long unknown field", {**right, MARKER * 10: MARKER}


def test_every_field_of_every_operation_has_its_nonsense() -> None:
    fields = {name for one in OPERATIONS.values() for name in one.command.model_fields}
    assert fields == set(NONSENSE)


@pytest.mark.guarantee("G-INPUT-01", "G-INPUT-02")
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_nonsense_is_refused_and_nothing_is_asked_of_the_database(play: Play, name: str) -> None:
    asked: list[str] = []
    before = dump(play.stage.engine)
    event.listen(play.stage.engine, "before_cursor_execute", lambda *a: asked.append(a[2]))
    leaks: dict[str, object] = {}
    admitted: list[str] = []
    for what, values in _wrong(play, name):
        try:
            play.call(name, values)
        except ValidationFailed as error:
            if MARKER in everything_said(error) or "surprise" in error.message.split(":")[-1]:
                leaks[what] = error.to_dict()
        except AssistantError as error:
            leaks[what] = error.to_dict()
        else:
            admitted.append(what)
        # A cursor is read by the operation itself; it may have looked, never written.
        if asked and not what.startswith("cursor"):
            admitted.append(f"{what}: {asked[0]}")
        asked.clear()
    assert (admitted, leaks) == ([], {})
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-INPUT-03")
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_the_input_that_is_right_in_every_field_is_taken(play: Play, name: str) -> None:
    """Otherwise what is wrong in one place might have been refused for another."""
    right = play.right(name)
    fields = set(OPERATIONS[name].command.model_fields)
    assert fields - set(right) <= {"cursor", "last", "error", "usage"}
    assert isinstance(play.call(name, right), dict)


@pytest.mark.guarantee("G-INPUT-04")
@pytest.mark.parametrize(
    "values", [None, 7, MARKER, [MARKER], {1: 2}, {None: 1}, [("a", 1)], Odd()]
)
def test_an_input_by_name_that_is_no_object_is_refused(play: Play, values: object) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        play.stage.me.call("assistant/get-thread", values)
    assert MARKER not in everything_said(refusal.value)


@pytest.mark.guarantee("G-INPUT-04")
@pytest.mark.parametrize("name", ["", MARKER, "get-thread", "assistant/GET-THREAD", None, [], 7])
def test_a_name_of_no_operation_is_refused(play: Play, name: object) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        play.stage.me.call(name, {"thread_id": play.thread_id})
    assert MARKER not in everything_said(refusal.value)
