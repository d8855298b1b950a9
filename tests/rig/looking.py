"""What a walk looks at after each step: every state and number, as the database has them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import sqlalchemy as sa

from engine_assistant.store.tables import threads
from tests.rig.drawn import START, stored
from tests.rig.model import Model
from tests.rig.states import Stage


def moment(milliseconds: int) -> datetime:
    """Answer the time that is so many milliseconds after the start of a walk."""
    return START + timedelta(milliseconds=milliseconds)


def look(stage: Stage, model: Model, checked: int, ids: list[str]) -> None:
    """Compare every state and number, and the log after `checked`; `ids` are of the messages."""
    thread_id = {"thread_id": stage.thread_id}
    with stage.engine.connect() as connection:
        head = connection.execute(_HEAD, thread_id).mappings().one()
        calls = connection.execute(_CALLS, thread_id).all()
        says = connection.execute(_SAYS, thread_id).all()
        runs = connection.execute(_RUNS, thread_id).all()
        log = connection.execute(_LOG, {**thread_id, "after": checked}).all()
        told = connection.execute(_TOLD, thread_id).scalars().all()
        said = connection.execute(_SAID, thread_id).all()
        contexts = connection.execute(_KEPT, thread_id).scalars().all()
    assert dict(head) == {
        "status": "closed" if model.closed else "open",
        "turn_state": model.turn_state,
        "turn": model.turn,
        "run_id": model.run,
        "fence": model.fence,
        "last_seq": len(model.log),
        "last_batch": model.batch.number if model.batch else 0,
        "milestones": len(model.milestones),
        "open_since": moment(model.since) if model.turn_state == "open" else None,
        "next_deadline": moment(model.deadline) if model.turn_state == "awaiting" else None,
        "lease_until": moment(model.until) if model.run else None,
        "interrupt_requested_at": None if model.stop is None else moment(model.stop),
        "queued": len(model.line()),
        "context_bytes": len(model.context or ""),
    }
    assert [seq for seq, *_ in log] == list(range(checked + 1, len(model.log) + 1))
    assert [_seen(kind, body) for _, kind, body in log] == model.log[checked:]
    assert told == model.milestones
    assert {int(fence): tuple(rest) for fence, *rest in runs} == {
        fence: (run.state, run.reason, stored(run.usage)) for fence, run in model.runs.items()
    }
    assert contexts == ([] if model.context is None else [model.context])
    assert {name: tuple(rest) for name, *rest in calls} == {
        name: (call.state, call.fence, call.attempt, call.order)
        for name, call in model.calls.items()
    }
    assert {(name, who): say for name, who, say in says} == {
        (name, who): say for name, call in model.calls.items() for who, say in call.says.items()
    }
    assert {row[0]: tuple(row[1:]) for row in said} == {
        input_id: (
            one.state, one.when_busy, "next" if one.urgent else "normal", one.position, one.joins,
            one.turn, one.first, one.last,
        )
        for input_id, one in zip(ids, model.messages, strict=True)
    }  # fmt: skip
    if model.line():
        _look_at_the_line(stage, model)
    runnable = stage.assistant.list_runnable(limit=1000)
    why = [entry.why for entry in runnable if entry.thread_id == stage.thread_id]
    assert why == ([model.runnable()] if model.runnable() else [])


def _look_at_the_line(stage: Stage, model: Model) -> None:
    """Compare what waits, as its owner sees it."""
    page = stage.owner.list_inputs(thread_id=stage.thread_id, state="queued")
    assert [view.text for view in page.items] == [said.text for said in model.line()]


def _seen(kind: str, body: str) -> tuple[str, str | None, str | None]:
    fields = json.loads(body)
    states = kind in ("call-closed", "approval-resolved")
    what = fields["text"] if kind == "user-message" else fields.get("call_id")
    return kind, what, fields["state"] if states else None


_T = threads.c
_HEAD = sa.select(
    _T.status, _T.turn_state, _T.turn, _T.run_id, _T.fence, _T.last_seq, _T.last_batch,
    _T.milestones, _T.open_since, _T.next_deadline, _T.lease_until, _T.interrupt_requested_at,
    _T.queued, _T.context_bytes,
).where(_T.id == sa.bindparam("thread_id"))  # fmt: skip
_CALLS = sa.text(
    "SELECT call_id, state, claimed_fence, claimed_attempt, input_seq"
    " FROM assistant_tool_calls WHERE thread_id = :thread_id"
)
_SAYS = sa.text(
    "SELECT a.call_id, a.approver_id, a.state FROM assistant_approvals a"
    " JOIN assistant_tool_calls c ON c.thread_id = a.thread_id AND c.call_id = a.call_id"
    " AND c.request_seq = a.request_seq WHERE a.thread_id = :thread_id"
)
_RUNS = sa.text(
    "SELECT fence, state, reason, usage FROM assistant_runs WHERE thread_id = :thread_id"
)
_KEPT = sa.text("SELECT state FROM assistant_contexts WHERE thread_id = :thread_id")
_LOG = sa.text(
    "SELECT seq, type, body FROM assistant_events"
    " WHERE thread_id = :thread_id AND seq > :after ORDER BY seq"
)
_TOLD = sa.text("SELECT type FROM assistant_outbox WHERE thread_id = :thread_id ORDER BY n")
_SAID = sa.text(
    "SELECT id, state, when_busy, priority, position, joins, turn, first_seq, last_seq"
    " FROM assistant_inputs WHERE thread_id = :thread_id"
)
