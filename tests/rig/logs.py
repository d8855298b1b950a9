"""Logs made by hand, for the pure part of a history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine_assistant.model.events import EVENTS, Known, Unknown
from engine_assistant.model.rows import CompactionRow
from engine_assistant.model.times import from_text
from engine_assistant.model.views.history import (
    HistoryAssistant,
    HistoryMessage,
    HistoryNote,
    HistoryResult,
    HistoryTool,
)
from engine_assistant.rules.history import tell

AT = from_text("2030-01-01T00:00:00.000Z")
ZEROS = "0" * 64

Body = dict[str, Any]

STEP: Body = {"type": "step-start"}
STEP_DONE: Body = {"type": "step-finish"}
DONE: Body = {"type": "turn-finish", "reason": "done"}
RESTS: Body = {"type": "turn-finish", "reason": "awaiting-approval"}


def say(text: str = "hello") -> Body:
    return {"type": "user-message", "text": text, "author": "usr_alice", "input_id": "in"}


def word(text: str = "word") -> Body:
    return {"type": "text-delta", "text": text}


def propose(call: str, tool_input: object = None, **given: object) -> Body:
    made = {"type": "tool-input", "call_id": call, "tool": "look", "step": "s1", **given}
    return {**made, "input": {} if tool_input is None else tool_input}


def output(call: str, value: object = "ok", *, late: bool = False) -> Body:
    return {"type": "tool-output", "call_id": call, "output": value, "late": late}


def failure(call: str, *, late: bool = False) -> Body:
    return {"type": "tool-error", "call_id": call, "code": "e", "message": "it broke", "late": late}


def closed(call: str, state: str = "unknown", why: str = "acquire-run") -> Body:
    return {"type": "call-closed", "call_id": call, "state": state, "why": why}


def resolved(call: str, *, approved: bool, reason: str | None = None) -> Body:
    said = {"call_id": call, "approver": "usr_alice", "digest": ZEROS, "reason": reason}
    state = "approved" if approved else "denied"
    return {"type": "approval-resolved", "approved": approved, "state": state, "missing": 0, **said}


def claimed(call: str) -> Body:
    held = {"run_id": "r1", "fence": 1, "version": "v1", "request_digest": ZEROS}
    return {"type": "execution-claimed", "call_id": call, **held}


def retried(call: str) -> Body:
    return {"type": "call-retried", "call_id": call, "run_id": "r2", "fence": 2}


def settled(call: str, *, happened: bool, value: object = None) -> Body:
    said = {"author": "usr_alice", "output": value, "reason": "she looked"}
    return {"type": "unknown-resolved", "call_id": call, "happened": happened, **said}


def seed(role: str, text: str) -> Body:
    return {"type": "seeded-message", "role": role, "text": text}


def log(*bodies: Body, first: int = 1) -> list[Known | Unknown]:
    """Number events, and count their turns by the turn-starts and messages that open one."""
    turn, open_, numbered = 0, False, []
    for seq, body in enumerate(bodies, first):
        if body["type"] == "user-message" and not open_:
            turn, open_ = turn + 1, True
        numbered.append({**body, "seq": seq, "turn": turn, "at": AT})
        if body["type"] in ("turn-finish", "turn-error") and body != RESTS:
            open_ = False
    return EVENTS.validate_python(numbered)


def summary(n: int, first: int, last: int, text: str = "They talked.") -> CompactionRow:
    return CompactionRow(
        tenant_id="acme",
        thread_id="thr",
        n=n,
        from_seq=first,
        to_seq=last,
        summary=text,
        covered_by=None,
        created_at=AT,
    )


def told(*bodies: Body, summaries: Iterable[CompactionRow] = ()) -> list[HistoryMessage]:
    """Return the history of a log."""
    return tell(log(*bodies), summaries).messages


def brief(messages: Sequence[HistoryMessage]) -> list[str]:
    """Say a history in a few words, to compare it with what was meant."""
    return [_brief(message) for message in messages]


def _brief(message: HistoryMessage) -> str:
    match message:
        case HistoryAssistant(text=text, calls=calls):
            return f"assistant {text}({' '.join(call.call_id for call in calls)})"
        case HistoryTool(results=results):
            return f"tool {' '.join(map(_result, results))}"
        case HistoryNote(result=result):
            return f"note {_result(result)}"
        case _:
            return f"{message.role} {message.text}"


def _result(result: HistoryResult) -> str:
    return f"{result.call_id}={result.status}"
