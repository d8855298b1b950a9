"""Trying one thing on a stage: it is admitted, or it is refused and has changed nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine_assistant import AssistantError, Conflict
from tests.rig.states import Stage

RESULTS = ("tool-output", "tool-error", "call-closed")
BEGINS = ("execution-claimed", "call-retried")
"""What lets a call run, for the first time or again."""


def attempt(stage: Stage, act: Callable[[Stage], object]) -> str | None:
    """Do it. Answer None when it was admitted, or the reason when it was refused.

    Raises:
        AssertionError: it was refused, and some row of the thread is not as it was.
    """
    before = stage.rows()
    try:
        act(stage)
    except AssistantError as error:
        reason = error.reason.value if isinstance(error, Conflict) else error.code
    else:
        return None
    assert stage.rows() == before, f"refused with {reason}, and yet rows changed"
    return reason


def results_of(stage: Stage, call: str) -> list[Mapping[str, object]]:
    """Answer every event that ends a call, a denial too, since it was last let run."""
    told = [event for event in stage.log() if event.get("call_id") == call]
    begun = max((n for n, event in enumerate(told) if event["type"] in BEGINS), default=-1)
    return [
        event
        for event in told[begun + 1 :]
        if event["type"] in RESULTS or event.get("state") == "denied"
    ]


def types_after(stage: Stage, seq: int) -> list[str]:
    """Answer the types of the events after a number."""
    return [str(event["type"]) for event in stage.log(after=seq)]


def closed_after(stage: Stage, seq: int) -> list[tuple[str, str]]:
    """Answer (call, state) of each call-closed after a number, in the log's order."""
    return [
        (str(event["call_id"]), str(event["state"]))
        for event in stage.log(after=seq)
        if event["type"] == "call-closed"
    ]
