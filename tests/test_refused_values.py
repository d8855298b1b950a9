"""What cannot be kept is refused by a typed error that does not quote it."""

import copy
import pickle
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, create_engine

from engine_assistant import (
    RUN,
    USE,
    ApprovalBinding,
    Assistant,
    AssistantError,
    Caller,
    Conflict,
    ConflictReason,
    Internal,
    NotFound,
    PermissionDenied,
    Raced,
    Unavailable,
    ValidationFailed,
    approval_digest,
    arguments_digest,
    tool_version,
)

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)
LONE = "in \ud800 side"


def _bound(**changed: object) -> str:
    names = ("version", "approver", "tenant", "thread", "step", "call", "operation")
    more = ("expires_at", "nonce", "input")
    return approval_digest(ApprovalBinding(**{**dict.fromkeys([*names, *more], "x"), **changed}))


@pytest.mark.parametrize(
    ("digest", "path"),
    [
        (lambda: _bound(input={"a": float("nan")}), "/input/a"),
        (lambda: _bound(input=[LONE]), "/input/0"),
        (lambda: _bound(step=1), "/step"),
        (lambda: arguments_digest({"a": (1, 2)}), "/a"),
        (lambda: tool_version("refund", {1: 2}, "payment"), "/schema"),
    ],
)
def test_what_cannot_be_digested_is_validation_failed(digest: Callable[[], str], path: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        digest()
    assert refusal.value.facts["path"] == path
    assert refusal.value.to_dict()["code"] == "validation_failed"


def test_a_lone_surrogate_is_refused_and_not_quoted(engine: Engine) -> None:
    me, host = (Assistant(engine).acting_as(caller) for caller in (ALICE, ROBOT))
    thread = me.create_thread()
    run = {"thread_id": thread.id, "run_id": "r1", "fence": 1}
    refused = (
        lambda: me.create_thread(title=LONE),
        lambda: me.send_message(thread_id=thread.id, text=LONE),
        lambda: me.get_thread(thread_id=LONE),
        lambda: host.append_events(**run, events=[{"type": "text-delta", "text": LONE}]),
        lambda: host.append_events(**run, events=[{"type": "data", "kind": "k", "payload": LONE}]),
    )
    for attempt in refused:
        with pytest.raises(ValidationFailed, match="lone surrogate") as refusal:
            attempt()
        assert "d800" not in str(refusal.value.to_dict())
    assert me.read_events(thread_id=thread.id).head_seq == 0


def test_a_race_for_the_locks_of_several_threads_is_raced(sqlite_url: str) -> None:
    """On an engine that nobody prepared, the lock's own BEGIN IMMEDIATE meets the other writer."""
    plain = create_engine(sqlite_url, connect_args={"timeout": 0})
    other = create_engine(sqlite_url, isolation_level="AUTOCOMMIT")
    assistant = Assistant(plain)
    thread = assistant.acting_as(ALICE).create_thread()
    with other.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(Raced), assistant.session(ALICE) as ops:
            ops.lock_threads([thread.id])
        holder.exec_driver_sql("ROLLBACK")
    with assistant.session(ALICE) as ops:
        assert [locked.id for locked in ops.lock_threads([thread.id, thread.id])] == [thread.id]
    plain.dispose()
    other.dispose()


@pytest.mark.parametrize(
    "error",
    [
        NotFound("gone"),
        PermissionDenied("no", needs="assistant:run"),
        ValidationFailed("wrong", path="text"),
        Conflict(ConflictReason.BATCH_GAP, "not yet", expected=3),
        Raced("again"),
        Unavailable("silent", sqlstate=None),
        Internal("broken", seq=7),
    ],
    ids=lambda error: error.code,
)
def test_an_error_travels_between_processes(error: AssistantError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert type(other) is type(error)
        assert (str(other), other.message, other.retry) == (str(error), error.message, error.retry)
        assert (other.facts, other.to_dict()) == (error.facts, error.to_dict())
        with pytest.raises(TypeError):
            other.facts["more"] = 1
