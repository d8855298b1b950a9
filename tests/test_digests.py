"""The digests: canonical form against published vectors, a library and node; every value bound."""

import dataclasses
import hashlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from engine_assistant.model.codec import MAX_DEPTH, JsonRefused, dumps, loads
from engine_assistant.model.digests import (
    APPROVAL_TAG,
    REQUEST_TAG,
    TOOL_TAG,
    ApprovalBinding,
    approval_digest,
    approval_digests,
    approval_json,
    arguments_digest,
    canonical_json,
    request_digest,
    tool_version,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "digest.md"
VERIFIER = ROOT / "docs" / "verify_digest.mjs"
VECTORS = ROOT.parent / "shared" / "data" / "jcs"
VECTOR_NAMES = ["arrays", "french", "structures", "unicode", "values", "weird"]
# A million takes ten seconds; set it so when the writer of numbers changes.
DOUBLES = int(os.environ.get("ENGINE_ASSISTANT_TEST_DOUBLES", "20000"))

SAFE = 2**53 - 1
BOUND = {
    "version": "v1",
    "approver": "usr_alice",
    "tenant": "acme",
    "thread": "thr_1",
    "step": "s1",
    "call": "c1",
    "operation": "refund",
    "expires_at": "2027-01-01T00:00:00.000Z",
    "nonce": "n1",
    "input": {"amount": 1.5, "order": 1234567890123456789},
}
DIGEST = "f21372223e04cce90fde2c1a726fb1742262826897c8e3bce9490141fbbd5281"
STRINGS = [name for name in BOUND if name != "input"]

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)


def json_values(integers):
    return st.recursive(
        st.none() | st.booleans() | integers | DOUBLE | TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=20,
    )


def bind(**changes):
    return ApprovalBinding(**{**BOUND, **changes})


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def node(*arguments, stdin, check=True):
    binary = shutil.which("node")
    if binary is None:
        pytest.skip("node is not installed: the comparison with ECMAScript itself needs it")
    return subprocess.run(
        [binary, *map(str, arguments)],
        input=stdin.encode(),
        capture_output=True,
        timeout=300,
        check=check,
    )


# ---------------------------------------------------------------- canonical form


@pytest.mark.guarantee("G-DIG-01")
@pytest.mark.parametrize("name", VECTOR_NAMES)
def test_the_published_vectors_of_rfc_8785(name):
    if not VECTORS.is_dir():
        pytest.skip("the RFC 8785 vectors are not at ../shared/data/jcs")
    value = loads((VECTORS / f"{name}.input.json").read_bytes())
    assert canonical_json(value) == (VECTORS / f"{name}.output.json").read_bytes().rstrip(b"\n")


@pytest.mark.guarantee("G-DIG-01")
@given(json_values(st.integers(-SAFE, SAFE)))
def test_where_rfc_8785_is_defined_another_library_writes_the_same(value):
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.guarantee("G-DIG-01")
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.0)
@example(-0.0)
@example(5e-324)
@example(-5e-324)
@example(1.7976931348623157e308)
@example(1e-6)
@example(9.999999999999999e-7)
@example(1e-7)
@example(0.0001)
@example(0.00001234)
@example(1e16)
@example(1e20)
@example(123456789012345680000.0)
@example(999999999999999900000.0)
@example(1e21)
@example(1e22)
@example(9007199254740992.0)
@example(9007199254740994.0)
@example(295147905179352830000.0)
@example(333333333.33333329)
def test_doubles_are_written_as_the_library_writes_them(value):
    assert canonical_json(value) == rfc8785.dumps(value)
    assert float(canonical_json(value)) == value


# Appendix B of RFC 8785: the bits of a double, and its text.
APPENDIX_B = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.guarantee("G-DIG-01")
@pytest.mark.parametrize("bits", APPENDIX_B)
def test_the_number_samples_of_rfc_8785(bits):
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(value).decode() == APPENDIX_B[bits]


def random_doubles(count):
    """Bit patterns of every size, and numbers near those where the form changes."""
    chance = random.Random(8785)
    found = []
    while len(found) < count:
        kind = chance.randrange(3)
        if kind == 0:
            (value,) = struct.unpack(">d", chance.randbytes(8))
        elif kind == 1:
            value = chance.choice([-1, 1]) * 10.0 ** chance.uniform(-8, 23)
        else:
            value = float(f"{chance.randrange(10**6)}e{chance.randrange(-12, 24)}")
        if math.isfinite(value):
            found.append(value)
    return found


@pytest.mark.guarantee("G-DIG-01")
def test_doubles_are_written_as_ecmascript_writes_them():
    doubles = random_doubles(DOUBLES)
    program = """
        const bytes = Buffer.from(require("fs").readFileSync(0, "utf8"), "hex");
        const lines = [];
        for (let at = 0; at < bytes.length; at += 8)
          lines.push(JSON.stringify(bytes.readDoubleBE(at)));
        process.stdout.write(lines.join("\\n"));
    """
    stdin = "".join(struct.pack(">d", value).hex() for value in doubles)
    written = node("-e", program, stdin=stdin).stdout.decode().split("\n")
    assert len(written) == DOUBLES
    ours = [canonical_json(value).decode() for value in doubles]
    assert [pair for pair in zip(ours, written, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.guarantee("G-DIG-02")
@pytest.mark.parametrize(
    "value",
    [SAFE, SAFE + 1, SAFE + 2, 1234567890123456789, 10**21, 2**70, 10**999, 10**1000 - 1],
)
def test_integers_are_written_in_exact_decimal(value):
    assert canonical_json([value, -value]).decode() == f"[{value},-{value}]"


@pytest.mark.guarantee("G-DIG-02")
@given(st.integers(10**18, 10**19 - 1), st.integers(1, 9))
def test_large_integers_that_differ_in_the_last_digit_differ_in_digest(value, difference):
    other = value - value % 10 + (value + difference) % 10
    assert approval_digest(bind(input={"id": value})) != approval_digest(bind(input={"id": other}))
    assert arguments_digest(value) != arguments_digest(other)


@pytest.mark.guarantee("G-DIG-03")
def test_truth_is_not_a_number_and_one_number_has_one_form():
    distinct = [True, 1, "1", False, 0, None, "", [], {}, [1], [True], "true", "null"]
    assert len({arguments_digest(value) for value in distinct}) == len(distinct)
    assert canonical_json([1.0, 1, -0.0, 0, 0.0, True]) == b"[1,1,0,0,0,true]"


@pytest.mark.guarantee("G-DIG-03")
def test_keys_are_sorted_by_utf_16_code_units():
    # By code point U+FB33 is first; in UTF-16 U+1F600 begins with D83D.
    value = {"\ufb33": 1, "\U0001f600": 2, "é": 3, "a": 4, "": 5, "aa": 6, "A": 7}
    assert list(json.loads(canonical_json(value))) == [
        "",
        "A",
        "a",
        "aa",
        "é",
        "\U0001f600",
        "\ufb33",
    ]


@pytest.mark.guarantee("G-DIG-03")
def test_text_is_not_normalised_and_only_what_must_be_is_escaped():
    assert arguments_digest("\u00e9") != arguments_digest("e\u0301")
    assert canonical_json("é€😂\u2028/\x7f").decode() == '"é€😂\u2028/\x7f"'
    assert canonical_json('\0\x1f\b\t\n\f\r"\\') == b'"\\u0000\\u001f\\b\\t\\n\\f\\r\\"\\\\"'


@pytest.mark.guarantee("G-DIG-03")
@given(json_values(st.integers(-(10**40), 10**40)))
def test_the_canonical_form_and_the_stored_form_of_a_value_have_one_canonical_form(value):
    canonical = canonical_json(value)
    assert canonical_json(loads(canonical)) == canonical
    assert canonical_json(loads(dumps(value))) == canonical


# ---------------------------------------------------------------- the approval


@pytest.mark.guarantee("G-DIG-04")
def test_the_published_vector():
    assert approval_digest(bind()) == DIGEST
    assert approval_json(bind()).decode() == (
        '["engine-assistant/approval/1","v1","usr_alice","acme","thr_1","s1","c1","refund",'
        '"2027-01-01T00:00:00.000Z","n1",{"amount":1.5,"order":1234567890123456789}]'
    )


@pytest.mark.guarantee("G-DIG-04")
def test_the_page_publishes_the_vector_and_the_tags():
    page = PAGE.read_text(encoding="utf-8")
    array, digest = re.findall(r"```text\n(.*)\n```", page)
    assert array.encode() == approval_json(bind())
    assert digest == sha256(array.encode()) == DIGEST
    for tag in (APPROVAL_TAG, REQUEST_TAG, TOOL_TAG):
        assert f'"{tag}"' in page


@pytest.mark.guarantee("G-DIG-04")
@given(
    st.fixed_dictionaries(dict.fromkeys(STRINGS, TEXT)),
    json_values(st.integers(-SAFE, SAFE)),
)
def test_the_digest_is_sha_256_over_a_library_s_canonical_array(strings, value):
    binding = ApprovalBinding(**strings, input=value)
    array = [
        APPROVAL_TAG,
        binding.version,
        binding.approver,
        binding.tenant,
        binding.thread,
        binding.step,
        binding.call,
        binding.operation,
        binding.expires_at,
        binding.nonce,
        binding.input,
    ]
    assert approval_json(binding) == rfc8785.dumps(array)
    assert approval_digest(binding) == sha256(rfc8785.dumps(array))


def test_the_fields_are_the_ten_bound_values_in_their_order():
    assert [field.name for field in dataclasses.fields(ApprovalBinding)] == list(BOUND)


@pytest.mark.guarantee("G-DIG-05")
@pytest.mark.parametrize("name", STRINGS)
def test_changing_a_bound_string_changes_the_digest(name):
    value = BOUND[name]
    others = [
        value + " ",
        value[:-1],
        value.upper() + "x",
        "",
        value + "\0",
        "é",
        value[::-1] + "-",
    ]
    digests = {approval_digest(bind(**{name: other})) for other in [value, *others]}
    assert len(digests) == len(others) + 1


@pytest.mark.guarantee("G-DIG-05")
@pytest.mark.parametrize(
    "value",
    [
        {"amount": 1.6, "order": 1234567890123456789},
        {"amount": 1.5, "order": 1234567890123456788},
        {"amount": "1.5", "order": 1234567890123456789},
        {"amount": 1.5, "order": "1234567890123456789"},
        {"amount": 1.5, "order": 1234567890123456789, "x": None},
        {"amount": 1.5},
        {"Amount": 1.5, "order": 1234567890123456789},
        [{"amount": 1.5, "order": 1234567890123456789}],
        {},
        None,
        '{"amount":1.5,"order":1234567890123456789}',
    ],
)
def test_changing_the_input_changes_the_digest(value):
    assert approval_digest(bind(input=value)) != DIGEST


@pytest.mark.guarantee("G-DIG-05")
def test_the_order_of_keys_and_the_spelling_of_a_number_do_not():
    assert approval_digest(bind(input={"order": 1234567890123456789, "amount": 1.50})) == DIGEST
    assert arguments_digest({"n": 2.0}) == arguments_digest({"n": 2})


@pytest.mark.guarantee("G-DIG-05")
def test_two_values_that_change_places_change_the_digest():
    swapped = [
        bind(**{left: BOUND[right], right: BOUND[left]})
        for index, left in enumerate(STRINGS)
        for right in STRINGS[index + 1 :]
    ]
    assert len({approval_digest(binding) for binding in swapped} | {DIGEST}) == len(swapped) + 1


@pytest.mark.guarantee("G-DIG-05")
def test_a_value_cannot_reach_into_its_neighbour():
    assert approval_digest(bind(step='s1","c1', call="c")) != approval_digest(
        bind(step="s1", call='c1","c')
    )


@given(st.lists(st.sampled_from([{"a": 1}, [2.5], "x", None]), max_size=6))
def test_digests_of_many_are_the_digests_one_by_one(inputs):
    bindings = [bind(approver=f"usr_{n}", input=value) for n, value in enumerate(inputs)]
    assert approval_digests(bindings) == [approval_digest(binding) for binding in bindings]


@pytest.mark.guarantee("G-DIG-06")
@pytest.mark.parametrize("name", STRINGS)
@pytest.mark.parametrize("value", [None, 1, True, b"v1", ["v1"], "\ud800", 1.5])
def test_a_bound_value_that_is_no_string_cannot_be_digested(name, value):
    with pytest.raises(JsonRefused) as refusal:
        approval_digest(bind(**{name: value}))
    assert refusal.value.path == f"/{name}"


def nested(levels):
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


UNDIGESTIBLE = {
    "NaN": math.nan,
    "infinity": [math.inf],
    "lone surrogate": "\ud800",
    "surrogate in a key": {"\udc00": 1},
    "integer key": {1: 2},
    "boolean key": {True: 2},
    "tuple": (1, 2),
    "set": {1},
    "bytes": b"1",
    "too deep": nested(MAX_DEPTH + 1),
    "5,000 deep": nested(5_000),
    "too many digits": 10**1_000,
    "5,000 digits": 10**4_999,
}


@pytest.mark.guarantee("G-DIG-06")
@pytest.mark.parametrize("name", UNDIGESTIBLE)
def test_an_input_that_is_not_json_cannot_be_digested(name):
    value = UNDIGESTIBLE[name]
    for call in (
        lambda: approval_digest(bind(input=value)),
        lambda: approval_digests([bind(), bind(input=value)]),
        lambda: approval_json(bind(input=value)),
        lambda: arguments_digest(value),
        lambda: canonical_json(value),
        lambda: tool_version("refund", value, "write"),
    ):
        with pytest.raises(JsonRefused):
            call()


@pytest.mark.guarantee("G-DIG-06")
def test_the_refusal_names_the_place_in_the_input():
    with pytest.raises(JsonRefused) as refusal:
        approval_digest(bind(input={"items": [{"price": math.nan}]}))
    assert refusal.value.path == "/input/items/0/price"


@pytest.mark.guarantee("G-DIG-06")
def test_an_input_as_deep_as_the_limit_can_be_digested():
    assert re.fullmatch(r"[0-9a-f]{64}", approval_digest(bind(input=nested(MAX_DEPTH))))
    assert re.fullmatch(r"[0-9a-f]{64}", tool_version("t", nested(MAX_DEPTH), "read"))


def test_a_binding_does_not_print_its_input_or_nonce_and_cannot_be_changed():
    text = repr(bind(nonce="secret-nonce", input={"card": "4111"}))
    assert "usr_alice" in text
    assert "4111" not in text
    assert "secret-nonce" not in text
    with pytest.raises(dataclasses.FrozenInstanceError):
        bind().version = "v2"


# ---------------------------------------------------------------- the other digests


@pytest.mark.guarantee("G-DIG-07")
def test_the_arguments_digest_is_sha_256_over_the_canonical_input_alone():
    assert arguments_digest({"b": 1.0, "a": "é"}) == sha256('{"a":"é","b":1}'.encode())
    assert arguments_digest(BOUND["input"]) != approval_digest(bind())


@pytest.mark.guarantee("G-DIG-08")
def test_the_request_digest_binds_the_number_the_people_and_their_order():
    one, two = approval_digest(bind()), approval_digest(bind(approver="usr_bob"))
    text = f'["engine-assistant/request/1",2,["{one}","{two}"]]'
    assert request_digest(2, [one, two]) == sha256(text.encode())
    others = [(1, [one, two]), (2, [two, one]), (2, [one]), (2, [one, two, two]), (2, (one, one))]
    digests = {request_digest(required, given) for required, given in others}
    assert len(digests | {request_digest(2, [one, two])}) == len(others) + 1


@pytest.mark.guarantee("G-DIG-08")
@pytest.mark.parametrize(
    ("required", "digests"),
    [
        (True, [DIGEST]),
        (0, [DIGEST]),
        (-1, [DIGEST]),
        (1.0, [DIGEST]),
        ("1", [DIGEST]),
        (None, [DIGEST]),
        (1, [DIGEST.upper()]),
        (1, [DIGEST[:-1]]),
        (1, [DIGEST + "\n"]),
        (1, [DIGEST.encode()]),
        (1, [None]),
        (1, DIGEST),
    ],
)
def test_a_request_of_something_else_cannot_be_digested(required, digests):
    with pytest.raises(JsonRefused):
        request_digest(required, digests)


@pytest.mark.guarantee("G-DIG-09")
def test_the_version_of_a_tool_changes_with_its_name_schema_and_effect_only():
    schema = {"type": "object", "properties": {"amount": {"type": "number", "minimum": 0}}}
    text = (
        '["engine-assistant/tool/1","refund",{"properties":{"amount":{"minimum":0,"type":"number"}}'
        ',"type":"object"},"write"]'
    )
    version = tool_version("refund", schema, "write")
    assert version == sha256(text.encode())
    reordered = {"properties": {"amount": {"minimum": 0.0, "type": "number"}}, "type": "object"}
    assert tool_version("refund", reordered, "write") == version
    changed = [
        tool_version("refunds", schema, "write"),
        tool_version("refund", {**schema, "additionalProperties": False}, "write"),
        tool_version("refund", schema, "destroy"),
        tool_version("write", schema, "refund"),
    ]
    assert len({version, *changed}) == len(changed) + 1


@pytest.mark.guarantee("G-DIG-09")
def test_a_tool_without_a_name_or_an_effect_has_no_version():
    for name, effect in ((None, "write"), ("refund", None), (True, "write"), ("refund", 1)):
        with pytest.raises(JsonRefused):
            tool_version(name, {}, effect)


# ---------------------------------------------------------------- the verifier in another language


def some_text(chance):
    alphabet = 'abcXYZ019 _-"\\/\0\n\x1f\x7fé€\u2028\ufb33😂𝄞:[]{},'
    return "".join(chance.choices(alphabet, k=chance.randrange(9)))


def some_json(chance, depth=4):
    kind = chance.randrange(8 if depth else 6)
    if kind == 0:
        return chance.choice([None, True, False, 0, -0.0, "", [], {}])
    if kind == 1:
        return some_text(chance)
    if kind == 2:
        return chance.choice([-1, 1]) * chance.randrange(10 ** chance.randrange(1, 40))
    if kind == 3:
        return chance.choice([SAFE, SAFE + 1, -SAFE - 1, 10**18 + 7, 10**999 + 1, 1e20, 1e21, 1e-7])
    if kind in (4, 5):
        return chance.choice(random_doubles_once())
    if kind == 6:
        return [some_json(chance, depth - 1) for _ in range(chance.randrange(5))]
    return {some_text(chance): some_json(chance, depth - 1) for _ in range(chance.randrange(5))}


_DOUBLES: list[float] = []


def random_doubles_once():
    if not _DOUBLES:
        _DOUBLES.extend(random_doubles(1_000))
    return _DOUBLES


@pytest.mark.guarantee("G-DIG-10")
def test_the_verifier_computes_the_published_vector():
    spaced = json.dumps(
        [APPROVAL_TAG, *(BOUND[name] for name in STRINGS), dict(reversed(BOUND["input"].items()))]
    ).replace("1.5", "0.150e1")
    for text in (approval_json(bind()).decode(), spaced, f"\n{spaced}\n\n"):
        assert node(VERIFIER, stdin=text).stdout.decode() == f"{DIGEST}\n"
        assert node(VERIFIER, DIGEST, stdin=text).returncode == 0
    changed = spaced.replace("456789", "456788")
    assert node(VERIFIER, DIGEST, stdin=changed, check=False).returncode == 1


@pytest.mark.guarantee("G-DIG-10")
def test_the_verifier_agrees_on_random_bindings():
    chance = random.Random(1)
    bindings = [
        ApprovalBinding(**{name: some_text(chance) for name in STRINGS}, input=some_json(chance))
        for _ in range(200)
    ]
    arrays = [
        [APPROVAL_TAG, *(getattr(binding, name) for name in STRINGS), binding.input]
        for binding in bindings
    ]
    expected = [approval_digest(binding) for binding in bindings]
    assert len(set(expected)) == len(expected)
    for lines in (
        [approval_json(binding).decode() for binding in bindings],
        [dumps(array) for array in arrays],
        [json.dumps(array) for array in arrays],
    ):
        assert node(VERIFIER, stdin="\n".join(lines)).stdout.decode().split() == expected


@pytest.mark.guarantee("G-DIG-10")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '["engine-assistant/request/1",1,[]]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n"]',
        '["engine-assistant/approval/1","v","a","t","t",1,"c","o","e","n",{}]',
        '["engine-assistant/approval/1","v","a","t","t",12345678901234567890,"c","o","e","n",{}]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",{"a":1,"a":2}]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",{"a":1,"\\u0061":2}]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n","\\ud800"]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",1e400]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",NaN]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",0123456789012345678901]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",12345678901234567890.]',
        '["engine-assistant/approval/1","v","a","t","t","s","c","o","e","n",{}],',
    ],
)
def test_the_verifier_refuses_what_has_no_digest(text):
    refused = node(VERIFIER, DIGEST, stdin=text, check=False)
    assert refused.returncode == 2
    assert refused.stdout == b""
