"""What a walk draws from, and how an event of the model becomes one of the engine."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from engine_assistant.model.codec import JsonValue
from tests.rig.model import FINISHES, PLAIN, Event
from tests.rig.states import (
    INPUT,
    OWNER,
    Fields,
    Stage,
    failure,
    finish,
    output,
    proposal,
    ready_request,
    turn_error,
)

Wanted = tuple[tuple[str, ...], int, int]
"""People, how many of them must approve, and for how many milliseconds they may."""
Drawn = tuple[str, int, int, str, Wanted, bool, bool, bool]
"""An event before it is one: kind, call, input, reason, request, asked again, the last request
again, and whether it is aimed at a call that may take it."""

START = datetime(2030, 1, 1, tzinfo=UTC)
PEOPLE = (OWNER, "usr_bob", "usr_cat")
INPUTS: tuple[JsonValue, ...] = (INPUT, {**INPUT, "order": 1234567890123456788})
FAILED = {"code": "broken", "message": "it broke"}
KINDS = (
    *PLAIN, *["tool-input"] * 4, *["tool-output"] * 3, "tool-error", *["approval-request"] * 4,
    "turn-start",
    "turn-finish", "turn-finish", "turn-error",
)  # fmt: skip
REASONS = (*FINISHES, *["awaiting-approval"] * 6)
HOPEFUL = {
    # in which states a call is mostly chosen for what
    "tool-input": ("running",),
    "tool-output": ("running", "executing"),
    "tool-error": ("running", "executing", "approved"),
    "approval-request": ("running",),
    "request": ("running",),
    "again": ("awaiting-approval", "approved"),
    "resolve": ("awaiting-approval",),
    "claim": ("approved",),
    "settle": ("executing", "unknown"),
    "lose": ("running", "executing"),
    "retry": ("unknown",),
    "say": ("unknown",),
}

# Mostly what may succeed, now and then what may not: walks must come far to see anything.
picks = st.integers(0, 5)
runs = st.sampled_from((*[""] * 12, "run-1", "run-2"))
fences = st.sampled_from((*[0] * 16, -1, 1))
inputs = st.sampled_from((*[0] * 9, 1))
mostly = st.sampled_from((True, True, True, True, True, True, False))
seldom = st.sampled_from((False, False, False, False, True))
numbers = st.sampled_from((*["none"] * 6, *["next"] * 9, "same", "same", "again", "gap"))
attempts = st.sampled_from((None, 1, 1, 2))
late = st.sampled_from(("tool-output", "tool-error"))
seconds = st.sampled_from((1, 1, 5, 5, 10, 10, 20))
people = st.sampled_from((*PEOPLE, OWNER, OWNER))
used = st.sampled_from((None, None, None, None, 1, 2))
contexts = st.sampled_from(("a", "bb", "ccc"))
busy = st.sampled_from((*["refuse"] * 3, *["queue"] * 5, *["steer"] * 3, "interrupt"))
words = st.sampled_from(("a", "b"))
keys = st.sampled_from((None, None, None, "k1", "k2"))


@st.composite
def asks(draw: st.DrawFn) -> Wanted:
    asked = draw(st.sampled_from((PEOPLE[:1], PEOPLE[:1], PEOPLE[:2], PEOPLE)))
    required = draw(st.integers(1, len(asked)))
    return asked, required, draw(st.sampled_from((10_000, 20_000, 600_000)))


events = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        picks,
        inputs,
        st.sampled_from(REASONS),
        asks(),
        seldom,
        seldom,
        mostly,
    ),
    min_size=1,
    max_size=3,
)


def figure(value: int) -> Fields:
    """Make the figure that a run gives of what it used up."""
    return {"value": value, "provenance": "reported"}


def stored(value: int | None) -> str | None:
    """Answer how that is kept."""
    return None if value is None else f'{{"input":{{"provenance":"reported","value":{value}}}}}'


def concrete(stage: Stage, event: Event) -> Fields:
    """Make the event that a run would give."""
    if event.ask is not None:
        now = round((stage.hands.now - START).total_seconds() * 1000)
        return ready_request(
            stage,
            event.call,
            approvers=event.ask.people,
            expires_in=(event.ask.expires - now) / 1000,
            nonce=event.ask.nonce,
            tool_input=INPUTS[event.ask.input],
            required=event.ask.required,
            reissue=event.reissue,
        )
    match event.type:
        case "turn-finish":
            return finish(event.reason)
        case "turn-error":
            return turn_error()
        case "turn-start":
            return {"type": "turn-start", "v": 1}
        case "tool-input":
            tool_input = INPUTS[event.input]
            return proposal(event.call, tool_input=tool_input, repeatable=event.repeatable)
        case "tool-output":
            return output(event.call)
        case "tool-error":
            return failure(event.call)
        case "text-delta":
            return {"type": "text-delta", "text": "hm"}
        case _:
            return {"type": event.type}
