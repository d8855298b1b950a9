"""Conversations to replay, and reading what a replay recorded as an auditor does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

ROOT = Path(__file__).parent.parent.parent
AIRLINE = ROOT.parent / "shared" / "data" / "conversations" / "airline.jsonl"
WRITES = (
    "book_reservation",
    "cancel_reservation",
    "update_reservation_flights",
    "update_reservation_baggages",
    "update_reservation_passengers",
    "send_certificate",
)
"""The tools of the airline that change something."""

Message = dict[str, Any]


# ---------------------------------------------------------------- conversations


def call(tool: str, number: int, provider_id: str = "call_1") -> Message:
    """Answer a tool call as OpenAI writes it."""
    arguments = json.dumps({"number": number})
    function = {"name": tool, "arguments": arguments}
    return {"id": provider_id, "type": "function", "function": function}


def result(content: str, provider_id: str = "call_1") -> Message:
    return {"role": "tool", "tool_call_id": provider_id, "content": content}


def asks(*calls: Message, content: str | None = None) -> Message:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def says(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def eventful(name: str = "eventful") -> dict[str, Any]:
    """Answer a short conversation in which everything happens that a kill can tear."""
    return {
        "id": name,
        "messages": [
            says("system", "You may refund."),
            says("user", "Two orders went wrong."),
            says("assistant", "I look."),
            asks(call("look", 1, "a"), call("look", 2, "b")),
            result("order 2", "b"),
            result("order 1", "a"),
            asks(call("refund", 3), call("look", 4, "x"), call("refund", 5, "y")),
            result("paid 3"),
            result("order 4", "x"),
            result("paid 5", "y"),
            asks(call("refund", 6)),
            result("paid 6"),
            says("assistant", "Both are refunded."),
            says("user", "And the third?"),
            says("user", "Are you there?"),
            asks(call("refund", 7)),
            result("paid 7"),
        ],
    }


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


# ---------------------------------------------------------------- the record, by plain SQL


@dataclass
class Recorded:
    """One thread as its log tells it."""

    numbers: list[int] = field(default_factory=list)
    spoken: list[tuple[str, str]] = field(default_factory=list)
    calls: dict[str, tuple[str, Any, str]] = field(default_factory=dict)
    results: dict[str, list[Any]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    claimed: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)

    def said(self, role: str, text: str) -> None:
        """Join the pieces of one answer."""
        if role == "delta":
            self.spoken[-1] = (self.spoken[-1][0], self.spoken[-1][1] + text)
        else:
            self.spoken.append((role, text))

    def take(self, seq: int, kind: str, body: Mapping[str, Any]) -> None:
        """Fold one event in."""
        self.numbers.append(seq)
        self.types[kind] += 1
        match kind:
            case "data":
                self.said(body["kind"], body["payload"].get("content", ""))
            case "user-message":
                self.said("user", body["text"])
            case "step-start":
                self.said("assistant", "")
            case "text-delta":
                self.said("delta", body["text"])
            case "tool-input":
                provider = body["provider_call_id"]
                self.calls[body["call_id"]] = (body["tool"], body["input"], provider)
            case "tool-output":
                self.results.setdefault(body["call_id"], []).append(body["output"])
            case "approval-request":
                self.asked[body["call_id"]] += 1
            case "execution-claimed":
                self.claimed[body["call_id"]] += 1


def recorded(engine: sa.Engine) -> dict[str, Recorded]:
    """Answer every thread by the id of its conversation."""
    found: dict[str, Recorded] = {}
    with engine.connect() as connection:
        for key, seq, kind, body in connection.execute(
            sa.text(
                "SELECT t.key, e.seq, e.type, e.body FROM assistant_events e"
                " JOIN assistant_threads t ON t.tenant_id = e.tenant_id AND t.id = e.thread_id"
                " ORDER BY t.key, e.seq"
            )
        ):
            found.setdefault(key, Recorded()).take(seq, kind, json.loads(body))
    return found


def states(engine: sa.Engine) -> dict[str, Counter[str]]:
    """Answer how the rows of each machine stand."""
    queries = {
        "turns": "SELECT turn_state FROM assistant_threads",
        "calls": "SELECT state FROM assistant_tool_calls",
        "runs": "SELECT state FROM assistant_runs",
        "approvals": "SELECT state FROM assistant_approvals",
    }
    with engine.connect() as connection:
        return {name: Counter(connection.scalars(sa.text(q))) for name, q in queries.items()}


def log(engine: sa.Engine) -> list[tuple[str, int, str]]:
    """Answer every committed event, to see later whether one was lost or changed."""
    query = "SELECT thread_id, seq, body FROM assistant_events ORDER BY thread_id, seq"
    with engine.connect() as connection:
        return [(row[0], row[1], row[2]) for row in connection.execute(sa.text(query))]


def expected(messages: Sequence[Message]) -> tuple[list[tuple[str, str]], list[Any]]:
    """Answer what was spoken, and each call with its result, from the conversation itself."""
    spoken = [(m["role"], m["content"] or "") for m in messages if m["role"] != "tool"]
    # Only a person's message opens a turn, so what stands before the first comes right after it.
    first = next(index for index, (role, _) in enumerate(spoken) if role == "user")
    spoken.insert(0, spoken.pop(first))
    calls: list[Any] = []
    open_calls: list[list[Any]] = []
    for message in messages:
        if message["role"] == "tool":
            answered = next(one for one in open_calls if one[2] == message["tool_call_id"])
            answered.append(message["content"])
            open_calls.remove(answered)
            continue
        open_calls = []
        for one in message.get("tool_calls") or []:
            function = one["function"]
            made = [function["name"], json.loads(function["arguments"]), one["id"]]
            calls.append(made)
            open_calls.append(made)
    return spoken, calls


def read_back(thread: Recorded) -> tuple[list[tuple[str, str]], list[Any]]:
    """Answer the same from the record."""
    calls = [[*made, *thread.results.get(id, [])] for id, made in thread.calls.items()]
    return thread.spoken, calls


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
