"""The codec: what is admitted is readable for ever, what is refused is refused cleanly."""

import collections
import enum
import json
import math
import pickle
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine_assistant.model.codec import (
    MAX_DEPTH,
    MAX_INTEGER_DIGITS,
    MAX_SIZE,
    JsonRefused,
    check_json,
    dumps,
    loads,
)

SECRET = "hunter2-do-not-log"

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Pair(NamedTuple):
    left: int
    right: int


class Word(str):
    __slots__ = ()


class Level(enum.IntEnum):
    HIGH = 3


class TwoFaced(dict):
    """Shows one thing to whoever iterates, and holds another."""

    def items(self):
        return {"amount": 1}.items()


def nested(levels, leaf=0):
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def nested_objects(levels):
    value = 0
    for _ in range(levels):
        value = {"a": value}
    return value


def exactly_equal(left, right):
    """Equal in type too, and in the sign of zero: Python takes 1, 1.0 and True for one value."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(exactly_equal(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(exactly_equal, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return left == right


# ---------------------------------------------------------------- what is admitted


@pytest.mark.guarantee("G-JSON-01")
@given(JSON)
def test_what_is_admitted_reads_back_the_same_and_is_written_the_same(value):
    check_json(value)
    text = dumps(value)
    assert exactly_equal(loads(text), value)
    assert exactly_equal(loads(text.encode()), value)
    assert dumps(loads(text)) == text


@pytest.mark.guarantee("G-JSON-02")
@given(JSON)
def test_the_text_is_the_standard_library_s_compact_sorted_text(value):
    expected = json.dumps(
        value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":")
    )
    assert dumps(value) == expected


@pytest.mark.guarantee("G-JSON-02")
def test_the_form_is_compact_with_sorted_keys_and_characters_as_they_are():
    value = {"b": [1, 2.5, True, None], "a": "é€😂", "": "\x7f</script>"}
    assert dumps(value) == '{"":"\x7f</script>","a":"é€😂","b":[1,2.5,true,null]}'


@pytest.mark.guarantee("G-JSON-03")
def test_nul_and_other_control_characters_are_kept_as_escapes():
    value = {"\0key": 'a\0b\x01\x1f\t\n"\\'}
    check_json(value)
    text = dumps(value)
    assert text == '{"\\u0000key":"a\\u0000b\\u0001\\u001f\\t\\n\\"\\\\"}'
    assert "\0" not in text
    assert loads(text) == value


@pytest.mark.guarantee("G-JSON-04")
def test_integers_are_exact_up_to_the_limit_of_digits():
    for value in (2**53 + 1, 1234567890123456789, 2**70, -(10**999), 10**1000 - 1):
        check_json(value)
        assert loads(dumps(value)) == value


def test_scalars_and_empty_containers_are_values():
    for value in (None, True, False, 0, -1, 0.5, "", [], {}):
        check_json(value)
        assert exactly_equal(loads(dumps(value)), value)


# ---------------------------------------------------------------- depth, digits, size


@pytest.mark.guarantee("G-JSON-05")
@pytest.mark.parametrize("build", [nested, nested_objects])
@pytest.mark.parametrize("depth", [0, 1, 7, MAX_DEPTH])
def test_depth_at_the_limit_is_accepted_and_one_more_is_refused(build, depth):
    check_json(build(depth), depth=depth)
    assert loads(dumps(build(depth)), depth=depth) == build(depth)
    with pytest.raises(JsonRefused, match=f"deeper than {depth}$"):
        check_json(build(depth + 1), depth=depth)
    with pytest.raises(JsonRefused, match=f"deeper than {depth}$"):
        loads(dumps(build(depth + 1)), depth=depth)


@pytest.mark.guarantee("G-JSON-05")
@pytest.mark.parametrize("levels", [5_000, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_deep_text_is_refused_however_deep(levels, opened, closed):
    for text in (opened * levels + "0" + closed * levels, opened * levels):
        with pytest.raises(JsonRefused, match="deeper"):
            loads(text)


@pytest.mark.guarantee("G-JSON-05")
def test_a_deep_value_is_refused_without_recursion():
    with pytest.raises(JsonRefused, match="deeper"):
        check_json(nested(5_000))
    with pytest.raises(JsonRefused, match="deeper"):
        check_json(nested(100_000), depth=99_999)
    check_json(nested(100_000), depth=100_000)


@pytest.mark.guarantee("G-JSON-05")
def test_the_writer_itself_refuses_what_it_cannot_follow():
    with pytest.raises(JsonRefused, match="deeply"):
        dumps(nested(100_000))


def test_brackets_inside_strings_are_not_depth():
    text = json.dumps(["[" * 200, '\\"[[{' * 50, {"{[": "]}"}])
    assert loads(text, depth=2) == json.loads(text)


def test_brackets_side_by_side_are_not_depth():
    assert loads("[" + ",".join(["[[]]"] * 500) + "]", depth=3) == [[[]]] * 500


@pytest.mark.guarantee("G-JSON-05")
def test_a_cycle_is_refused_at_once_however_it_fans_out():
    ring: list[object] = []
    ring.extend([ring, ring, ring])
    with pytest.raises(JsonRefused, match="deeper"):
        check_json(ring)


@pytest.mark.guarantee("G-JSON-06")
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_of_one_digit_too_many_is_refused(sign):
    for digits in (1, 15, 16, 17, MAX_INTEGER_DIGITS):
        for value in (10**digits - 1, 10 ** (digits - 1)):
            check_json(sign * value, integer_digits=digits)
        with pytest.raises(JsonRefused, match=f"more than {digits} digits"):
            check_json(sign * 10**digits, integer_digits=digits)
        with pytest.raises(JsonRefused, match=f"more than {digits} digits"):
            loads(str(sign * 10**digits), integer_digits=digits)


@pytest.mark.guarantee("G-JSON-06")
def test_an_integer_that_python_would_not_write_is_refused_by_us():
    with pytest.raises(JsonRefused, match="more than 1000 digits"):
        check_json({"n": 10**4_999})
    for text in ("9" * 5_000, "-" + "9" * 5_000, '{"n":[' + "9" * 5_000 + "]}"):
        with pytest.raises(JsonRefused, match="more than 1000 digits"):
            loads(text)
    with pytest.raises(JsonRefused):
        dumps(10**4_999)
    with pytest.raises(JsonRefused, match="too many digits"):
        loads("9" * 5_000, integer_digits=6_000)


@pytest.mark.guarantee("G-JSON-07")
def test_a_value_that_repeats_one_list_is_refused_before_it_is_written():
    bomb: list[object] = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    with pytest.raises(JsonRefused, match="larger than"):
        check_json(bomb)
    with pytest.raises(JsonRefused, match="larger than"):
        check_json(["x" * 1_000_000] * 5)
    with pytest.raises(JsonRefused, match="larger than 9 bytes"):
        check_json({"k" * 10: 0}, size=9)


@pytest.mark.guarantee("G-JSON-07")
@example(9)
@example([8, 1023, 1024, -(2**63), 10**999])
@given(JSON)
def test_a_value_that_fits_is_never_called_too_large(value):
    check_json(value, size=len(dumps(value).encode()))


# ---------------------------------------------------------------- what is refused

REFUSED = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "lone surrogate": "a\ud800b",
    "low surrogate": "\udc00",
    "surrogate pair as two characters": "\ud83d\ude02",
    "surrogate in a key": {"\udfff": 1},
    "integer key": {1: "x"},
    "boolean key": {True: "x"},
    "null key": {None: "x"},
    "bytes key": {b"a": "x"},
    "subclassed key": {Word("a"): "x"},
    "tuple": (1, 2),
    "named tuple": Pair(1, 2),
    "set": {1},
    "frozen set": frozenset(),
    "bytes": b"a",
    "bytearray": bytearray(),
    "decimal": Decimal("1.5"),
    "complex": 1j,
    "datetime": datetime(2027, 1, 1, tzinfo=UTC),
    "ellipsis": ...,
    "object": object(),
    "generator": (x for x in ()),
    "subclassed string": Word("a"),
    "enum": Level.HIGH,
    "ordered dict": collections.OrderedDict(a=1),
    "two-faced dict": TwoFaced(amount=1_000_000),
}


@pytest.mark.guarantee("G-JSON-08")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_json_is_refused_wherever_it_stands(name):
    value = REFUSED[name]
    for whole in (value, [value], {"a": value}, [0, {"a": ["x", value]}]):
        with pytest.raises(JsonRefused):
            check_json(whole)


BAD_TEXT = {
    "empty": "",
    "blank": " \n",
    "two values": "1 2",
    "cut short": '{"a":',
    "cut in a string": '"abc',
    "single quotes": "{'a':1}",
    "comment": "1 // one",
    "trailing comma": "[1,]",
    "bare word": "nul",
    "NaN": "NaN",
    "NaN inside": '{"a":[NaN]}',
    "Infinity": "Infinity",
    "minus Infinity": "-Infinity",
    "1e400": "1e400",
    "-1e400 inside": "[-1e400]",
    "leading zero": "01",
    "plus": "+1",
    "raw newline in a string": '"a\nb"',
    "raw NUL in a string": '"a\0b"',
    "duplicate key": '{"a":1,"a":2}',
    "duplicate key, escaped": '{"a":1,"\\u0061":2}',
    "duplicate key inside": '[{"x":{"a":1,"b":2,"a":1}}]',
    "escaped lone surrogate": '"\\ud800"',
    "escaped lone surrogate in a key": '{"\\udc00":1}',
    "reversed pair": '"\\ude02\\ud83d"',
    "raw lone surrogate": '"\ud800"',
    "byte order mark": "\ufeff1",
    "byte order mark, bytes": b"\xef\xbb\xbf1",
    "bytes that are no UTF-8": b'"\xff"',
    "bytes with an encoded surrogate": b'"\xed\xa0\x80"',
    "bytes in UTF-16": '"a"'.encode("utf-16"),
}


@pytest.mark.guarantee("G-JSON-09")
@pytest.mark.parametrize("name", BAD_TEXT)
def test_text_that_is_not_strict_json_is_refused(name):
    with pytest.raises(JsonRefused):
        loads(BAD_TEXT[name])


@pytest.mark.guarantee("G-JSON-09")
@given(st.text(st.sampled_from('[]{}",:\\u0de19.+- \nNaNtruefalsnul\0é\ud800')) | st.binary())
def test_any_text_is_read_or_refused_and_nothing_else(text):
    try:
        value = loads(text)
    except JsonRefused:
        return
    check_json(value)
    assert exactly_equal(loads(dumps(value)), value)


def test_text_that_is_json_is_read_as_the_standard_library_reads_it():
    text = ' { "a" : [ 1 , -0 , 0.10 , 1E2 , "\\ud83d\\ude02\\u0000" ] , "b" : { } } \n'
    assert exactly_equal(loads(text), json.loads(text))
    assert exactly_equal(loads(text.encode()), json.loads(text))


def test_a_file_may_be_larger_than_one_stored_value():
    assert loads('["' + "x" * (MAX_SIZE + 1) + '"]') == ["x" * (MAX_SIZE + 1)]


def test_an_unended_string_full_of_escapes_is_scanned_once():
    # With a pattern that backtracks this takes hours, not milliseconds.
    with pytest.raises(JsonRefused):
        loads("[" * (MAX_DEPTH + 1) + '"' + '\\"' * 500_000)
    with pytest.raises(JsonRefused):
        loads('["' + '\\"[' * 500_000)


@pytest.mark.guarantee("G-JSON-08")
def test_the_writer_raises_nothing_but_its_own_refusal():
    for value in ([math.nan], {"a": 1, 2: "b"}, {(1,): 1}, [object()], {1}, b"x"):
        with pytest.raises(JsonRefused):
            dumps(value)


# ---------------------------------------------------------------- what a refusal says


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, ""),
        ([0, math.nan], "/1"),
        ({"order": {"items": [1, {"price": math.inf}]}}, "/order/items/1/price"),
        ({"order": {"items": {2: "x"}}}, "/order/items"),
        ({"a b": math.nan}, "/*"),
        ({"a/b": [math.nan]}, "/*/0"),
        ({"é": {"n": math.nan}}, "/*/n"),
        ({"7": math.nan}, "/*"),
        ({"x" * 33: math.nan}, "/*"),
    ],
)
def test_a_refusal_says_where(value, path):
    with pytest.raises(JsonRefused) as refusal:
        check_json(value)
    assert refusal.value.path == path
    assert str(refusal.value).endswith(refusal.value.reason)


def test_a_long_path_is_cut():
    value: object = math.nan
    for _ in range(60):
        value = {"a_rather_long_field_name": value}
    with pytest.raises(JsonRefused) as refusal:
        check_json(value)
    assert len(refusal.value.path) == 160
    assert refusal.value.path.endswith("...")


@pytest.mark.guarantee("G-JSON-10")
@pytest.mark.parametrize(
    "value",
    [
        SECRET + "\ud800",
        {SECRET + "\ud800": 1},
        {SECRET: math.nan},
        {SECRET: {1: SECRET}},
        {SECRET: nested(70, SECRET)},
        [SECRET, (SECRET,)],
        [SECRET, SECRET.encode()],
        [SECRET, SECRET * 300_000],
    ],
)
def test_a_refused_value_is_not_in_the_message(value):
    with pytest.raises(JsonRefused) as refusal:
        check_json(value)
    assert "hunter2" not in str(refusal.value) + repr(refusal.value)
    str(refusal.value).encode()


@pytest.mark.guarantee("G-JSON-10")
@pytest.mark.parametrize(
    "text",
    [
        f'{{"{SECRET}":1,"{SECRET}":2}}',
        f'["{SECRET}", NaN]',
        f'["{SECRET}", {SECRET}]',
        f'["{SECRET}',
        f'["\\{SECRET}"]',
        f'["{SECRET}\\ud800"]',
        f'["{SECRET}"'.encode() + b"\xff",
    ],
)
def test_refused_text_is_not_in_the_message(text):
    with pytest.raises(JsonRefused) as refusal:
        loads(text)
    assert "hunter2" not in str(refusal.value) + repr(refusal.value)


def test_a_refusal_survives_a_process_boundary():
    refusal = pickle.loads(pickle.dumps(JsonRefused("not JSON", "/a/0")))  # noqa: S301
    assert (refusal.reason, refusal.path, str(refusal)) == ("not JSON", "/a/0", "/a/0: not JSON")


def test_the_process_may_allow_fewer_digits_than_we_do():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for call in (lambda: dumps(10**900), lambda: loads("1" + "0" * 900)):
            with pytest.raises(JsonRefused):
                call()
    finally:
        sys.set_int_max_str_digits(before)
