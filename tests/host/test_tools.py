"""What a function declares, and what the host says about it: arguments, version, card, policy."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, PlainSerializer

from engine_assistant import tool_version
from engine_assistant.host import (
    MASK,
    CallId,
    PreparedCall,
    Tool,
    ToolContext,
    ToolFailed,
    ToolRegistry,
    tool,
)
from engine_assistant.model.digests import canonical_json
from tests.host.stage import call


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    sku: str
    count: int = 1


@tool(effect="write", approval="always", sensitive={"card"}, preview=str)
async def order(  # noqa: PLR0917 - some of each kind
    lines: list[Line],
    when: date,
    price: Annotated[Decimal, Field(description="In euros.", gt=0)],
    context: ToolContext,
    key: CallId,
    colour: Colour = Colour.RED,
    card: str | None = None,
    *,
    copy: bool = False,
) -> dict[str, object]:
    """Order something."""
    return {"order": 1}


GIVEN = {"lines": [{"sku": "a"}], "when": "2027-02-28", "price": "1.50", "card": "4111"}


def prepared(one: Tool, **input: object) -> PreparedCall:
    found = ToolRegistry([one]).prepare(call(one.name, **input))
    assert isinstance(found, PreparedCall)
    return found


def refused(one: Tool, input: object) -> ToolFailed:
    found = ToolRegistry([one]).prepare(replace(call(one.name), input=input))
    assert isinstance(found, ToolFailed)
    return found


# ---------------------------------------------------------------- what the model is told


@pytest.mark.guarantee("G-HOST-20")
def test_the_model_is_told_the_types_and_nothing_of_what_the_host_gives() -> None:
    told = order.definition
    assert (told.name, told.description) == ("order", "Order something.")
    assert set(told.schema["properties"]) == {"lines", "when", "price", "colour", "card", "copy"}
    assert told.schema["required"] == ["lines", "when", "price"]
    assert told.schema["additionalProperties"] is False
    assert told.schema["properties"]["price"]["description"] == "In euros."
    assert told.schema["properties"]["when"] == {"format": "date", "type": "string"}


@pytest.mark.guarantee("G-HOST-27")
def test_a_version_changes_with_name_schema_and_effect_and_with_nothing_else() -> None:
    def book(hotel: str) -> None: ...

    def book_more(hotel: str, nights: int) -> None: ...

    first = tool(effect="write", name="book")(book)
    assert first.version == tool_version("book", dict(first.definition.schema), "write")
    same = tool(effect="write", approval="always", name="book", description="Other words.")(book)
    assert same.version == first.version
    others = [
        tool(effect="destructive", name="book")(book),
        tool(effect="write", name="reserve")(book),
        tool(effect="write", name="book")(book_more),
    ]
    assert len({one.version for one in [first, *others]}) == 4


# ---------------------------------------------------------------- the bound input


@pytest.mark.guarantee("G-HOST-20")
def test_a_bound_input_has_every_default_and_binds_to_itself() -> None:
    once = prepared(order, **GIVEN)
    assert once.input == {
        "lines": [{"sku": "a", "count": 1}],
        "when": "2027-02-28",
        "price": "1.50",
        "colour": "red",
        "card": "4111",
        "copy": False,
    }
    assert prepared(order, **once.input).input == once.input


@tool(effect="read")
def look_at(n: int, x: float, text: str, at: datetime, some: dict[str, int | str]) -> None: ...


@pytest.mark.guarantee("G-HOST-20", "G-HOST-21")
@given(
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.datetimes(),
)
def test_whatever_is_bound_binds_to_itself(n: int, x: float, text: str, at: datetime) -> None:
    given = {"n": n, "x": x, "text": text, "at": at.isoformat(), "some": {text: n}}
    bound = look_at.arguments.bind(given)
    assert canonical_json(look_at.arguments.bind(bound)) == canonical_json(bound)
    assert (bound["n"], bound["some"]) == (n, {text: n})


@pytest.mark.guarantee("G-HOST-20")
def test_a_default_is_bound_as_if_it_had_been_given() -> None:
    def pay(price: Decimal = 1, colour: Colour = "blue") -> None: ...  # type: ignore[assignment]

    one = tool(effect="write", approval="always")(pay)
    assert prepared(one).input == {"price": "1", "colour": "blue"}


@pytest.mark.guarantee("G-HOST-21")
def test_integers_that_differ_in_their_last_digit_stay_different() -> None:
    @tool(effect="write", approval="always")
    def refund(order: int) -> None: ...

    one, other = (prepared(refund, order=n) for n in (1234567890123456789, 1234567890123456788))
    assert (one.input["order"], other.input["order"]) == (1234567890123456789, 1234567890123456788)


INVALID = {
    "missing": {"lines": [], "when": "2027-02-28"},
    "unknown": GIVEN | {"discount": 100},
    "wrong": GIVEN | {"when": "soon"},
    "out of range": GIVEN | {"price": -1},
    "no such": GIVEN | {"colour": "green"},
    "no object": [1, 2],
    "text that was no JSON": '{"lines": [',
    "nothing": None,
    "what the host gives": GIVEN | {"key": "mine"},
    "the host's context": GIVEN | {"context": {}},
    "the field's own name": GIVEN | {"argument_0": []},
    "NaN": GIVEN | {"price": float("nan")},
    "deeper than a record holds": GIVEN | {"lines": json.loads("[" * 70 + "]" * 70)},
}


@pytest.mark.guarantee("G-HOST-20")
@pytest.mark.parametrize("input", INVALID.values(), ids=INVALID)
def test_arguments_that_the_tool_does_not_take_are_refused_with_a_reason(input: object) -> None:
    said = refused(order, input)
    assert said.code == "invalid_arguments"
    assert said.message
    assert "4111" not in said.message


@pytest.mark.guarantee("G-HOST-20")
def test_arguments_that_do_not_read_back_the_same_are_refused() -> None:
    drifting = Annotated[int, PlainSerializer(lambda n: n + 1, return_type=int)]

    def odd(n: drifting) -> None: ...

    odd.__annotations__ = {"n": drifting}
    assert refused(tool(effect="read")(odd), {"n": 1}).code == "invalid_arguments"


def test_a_validator_of_the_hosts_may_refuse() -> None:
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    number = Annotated[int, AfterValidator(even)]

    def take(n: int) -> None: ...

    take.__annotations__ = {"n": number}
    assert refused(tool(effect="read")(take), {"n": 3}).message == "n: Value error, must be even"


def test_names_that_pydantic_uses_itself_are_fine() -> None:
    @tool(effect="read")
    def look(schema: str, json: int, model_config: str, copy: bool, _hidden: int = 1) -> None: ...

    given = {"schema": "s", "json": 1, "model_config": "m", "copy": True}
    assert prepared_input(look, given) == given | {"_hidden": 1}


def prepared_input(one: Tool, given: dict[str, object]) -> dict[str, object]:
    return one.arguments.bind(given)


def _untyped(n) -> None: ...
def _rest(*n: int) -> None: ...
def _named(**n: int) -> None: ...
def _position(n: int, /) -> None: ...
def _field(n: int = Field(gt=1)) -> None: ...


@pytest.mark.parametrize("function", [_untyped, _rest, _named, _position, _field])
def test_parameters_that_nobody_could_fill_are_refused_when_declared(
    function: Callable[..., object],
) -> None:
    with pytest.raises(TypeError, match="the parameter n of a tool"):
        tool(effect="read")(function)


# ---------------------------------------------------------------- what the host says


def _look(n: int = 0, pin: str = "") -> None: ...


@pytest.mark.parametrize(
    "wrong",
    [
        {"effect": "delete"},
        {"approval": "sometimes"},
        {"name": "has space"},
        {"name": "x" * 65},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"sensitive": {"nip"}},
    ],
)
def test_what_cannot_be_is_refused_when_declared(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        tool(**{"effect": "read", **wrong})(_look)


def test_looking_is_repeatable_and_changing_is_not_unless_said() -> None:
    assert tool(effect="read")(_look).repeatable
    assert not tool(effect="write")(_look).repeatable
    assert tool(effect="write", repeatable=True)(_look).repeatable


@pytest.mark.guarantee("G-HOST-22")
def test_a_call_that_the_host_did_not_classify_is_refused() -> None:
    assert refused(tool(effect="read")(_look), {}).code == "unclassified"


Said = Literal["never", "always"] | None


@pytest.mark.guarantee("G-HOST-22")
def test_a_policy_says_it_for_each_bound_input() -> None:
    seen = []

    def large(input: dict[str, object]) -> Said:
        seen.append(input)
        return "always" if input["n"] > 100 else "never"

    one = tool(effect="write", approval=large)(_look)
    assert [prepared(one, n=n).needs_approval for n in (100, "101")] == [False, True]
    assert seen[-1] == {"n": 101, "pin": ""}


@pytest.mark.guarantee("G-HOST-22")
@pytest.mark.parametrize("said", [None, "", "no", False, True, 0, ["never"]])
def test_a_policy_that_says_anything_else_has_not_said_that_it_may_run(said: object) -> None:
    one = tool(effect="write", approval=lambda _: said)(_look)
    assert refused(one, {}).code == "unclassified"


@pytest.mark.guarantee("G-HOST-22", "G-HOST-23")
def test_a_policy_that_fails_has_not_said_it_either(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> Said:
        raise RuntimeError("the policy service is away")

    said = refused(tool(effect="write", approval=broken)(_look), {})
    assert said.code == "unclassified"
    assert "away" not in said.message
    assert "away" in caplog.text


@pytest.mark.guarantee("G-HOST-25")
def test_a_card_shows_the_bound_input_with_sensitive_arguments_masked() -> None:
    one = prepared(order, **GIVEN)
    assert one.card.input == one.input | {"card": MASK}
    assert (one.card.tool, one.card.effect) == ("order", "write")
    assert "4111" not in repr(one) + repr(one.card) + str(one.card.preview)
    assert MASK in str(one.card.preview)


@pytest.mark.guarantee("G-HOST-25")
def test_a_preview_that_fails_leaves_the_card(caplog: pytest.LogCaptureFixture) -> None:
    one = tool(effect="write", approval="always", preview=lambda seen: seen["nothing"])(_look)
    card = prepared(one, n=1).card
    assert (card.input, card.preview) == ({"n": 1, "pin": ""}, None)
    assert "preview" in caplog.text


@pytest.mark.guarantee("G-HOST-28")
def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="_look"):
        ToolRegistry([tool(effect="read")(_look), tool(effect="write")(_look)])
