"""Runs, calls that ran again, and private context: what plain SQL does to them is found out."""

import pytest

from engine_assistant.doctor import Code
from tests.rig.patient import (
    Harm,
    Patient,
    added,
    becomes,
    body,
    change,
    event,
    harm,
    headed,
    remove,
)

AT = "'2030-06-01T00:00:00.000Z'"
LATE = "2030-01-02T00:00:00.000Z"
CONTEXT = "tenant_id, thread_id, turn, fence, state, updated_at"
RETRIED = '{"call_id":"c2","fence":2,"run_id":"run-2","type":"call-retried"}'
CLAIMED = (
    f'{{"attempt":2,"call_id":"c2","fence":2,"request_digest":"{"1" * 64}","run_id":"run-2",'
    '"type":"execution-claimed","version":"v1"}'
)
SAID = '{"author":"usr_alice","call_id":"%s","happened":true,"type":"unknown-resolved"}'
SECRET = "hunter2"


def _run(name: str, fence: int, values: str) -> Harm:
    where = f"run {fence}"
    return harm(name, Code.RUN, where, change("runs", values, f"fence = {fence}"))


RUNS = {
    "a run ended by another reason": _run("everyday", 1, "reason = 'done'"),
    "a run that finished was replaced": _run("everyday", 2, "reason = 'replaced'"),
    "a run that was replaced was released": _run("taken over", 1, "reason = 'released'"),
    "a run that was released is done": _run("taken over", 2, "reason = 'done'"),
    "a run that was closed was interrupted": _run("closed running", 1, "reason = 'interrupted'"),
    "a live run has a reason": _run("running", 1, "reason = 'done'"),
    "a run ended by a reason that none has": _run("everyday", 1, "reason = 'bored'"),
    "a run was in a later turn": _run("everyday", 1, "turn = 9"),
    "a run went back a turn": _run("asked at last", 4, "turn = -1"),
    "a run stands before its turn": harm(
        "asked at last", Code.RUN, "run 2", change("runs", "turn = 2", "fence = 1")
    ),
    "a run's usage is no JSON": _run("recovered", 1, "usage = '{'"),
    "a run's usage is empty": _run("recovered", 1, "usage = '{}'"),
    "a run's usage is negative": _run("recovered", 1, "usage = replace(usage, ':3', ':-3')"),
    "a run's usage is written otherwise": _run("recovered", 1, "usage = replace(usage, ',', ', ')"),
    "a run's usage says more than it may": _run(
        "recovered", 1, 'usage = replace(usage, \'"EUR"\', \'"EUR","x":1\')'
    ),
    "a run's operation is no JSON": _run("recovered", 1, "operation = 'o1'"),
    "a run's operation never began": _run(
        "recovered", 1, "operation = replace(operation, 'started_at', 'stared_at')"
    ),
    "a run's operation is written otherwise": _run(
        "recovered", 3, "operation = replace(operation, ':', ': ')"
    ),
}

CALLS = {
    "a call runs again under a fence that never was": harm(
        "recovered", Code.CLAIM, "event 15", body(15, '"fence":2', '"fence":9')
    ),
    "a call runs again under an older fence": harm(
        "recovered", Code.CLAIM, "event 16", body(16, '"fence":2', '"fence":1')
    ),
    "a call runs again for another run": harm(
        "recovered", Code.CLAIM, "event 15", body(15, "run-2", "run-1")
    ),
    "a call is claimed in another turn than its run's": harm(
        "recovered",
        Code.CLAIM,
        "event 16",
        change("runs", "turn = 0", "fence = 1"),
        change("runs", "turn = 2", "fence = 2"),
    ),
    "nobody said that an ungated call may run again": harm(
        "recovered", Code.CLAIM, "event 15", body(4, '"repeatable":true,', "")
    ),
    "nobody said that a gated call may run again": harm(
        "recovered", Code.CLAIM, "event 16", body(5, '"repeatable":true,', "")
    ),
    "a gated call runs again unclaimed": harm(
        "recovered", Code.CLAIM, "event 16", becomes(16, "call-retried", RETRIED)
    ),
    "a gated call runs again after its time": harm(
        "recovered", Code.EXPIRY, "event 16", event(16, f"created_at = '{LATE}'")
    ),
    "a call runs again as another request": harm(
        "recovered", Code.DIGEST, "event 16", becomes(16, "execution-claimed", CLAIMED)
    ),
    "a call runs again that was never lost": harm(
        "everyday",
        Code.CLAIM,
        "event 27",
        added(27, "call-retried", RETRIED.replace("c2", "c9"), turn=3),
        headed(27),
    ),
    "a call runs again that nobody proposed": harm(
        "everyday",
        Code.CALL_MOVE,
        "event 27",
        added(27, "call-retried", RETRIED.replace("c2", "c0"), turn=3),
        headed(27),
    ),
    "a call that ran again has its first fence": harm(
        "recovered",
        Code.CALL_ROW,
        "call c1",
        change("tool_calls", "claimed_fence = 1", "call_id = 'c1'"),
    ),
    "a call that ran again has its first attempt": harm(
        "recovered",
        Code.CALL_ROW,
        "call c1",
        change("tool_calls", "claimed_attempt = NULL", "call_id = 'c1'"),
    ),
    "what a person said has another outcome": harm(
        "recovered",
        Code.RESULT,
        "call c3",
        change("tool_calls", "result = '{\"output\":null}'", "call_id = 'c3'"),
    ),
    "what a person said is forgotten": harm(
        "recovered", Code.RESULT, "call c4", change("tool_calls", "result = NULL", "call_id = 'c4'")
    ),
    "what a person said is turned round": harm(
        "recovered", Code.CALL_STATE, "call c3", body(17, '"happened":false', '"happened":true')
    ),
    "a person resolves what had a result": harm(
        "recovered",
        Code.RESULT,
        "event 24",
        added(24, "unknown-resolved", SAID % "c1"),
        headed(24),
    ),
    "a person resolves what was cancelled": harm(
        "recovered",
        Code.CALL_MOVE,
        "event 24",
        added(24, "unknown-resolved", SAID % "c3"),
        headed(24),
    ),
    "a person resolves what nobody proposed": harm(
        "recovered",
        Code.CALL_MOVE,
        "event 24",
        added(24, "unknown-resolved", SAID % "c0"),
        headed(24),
    ),
    "what is known after a closing cannot be read": harm(
        "resolved closed",
        Code.RESULT,
        "call c1",
        change("tool_calls", "result = '{\"so\":7}'", "call_id = 'c1'"),
    ),
}


def _context(name: str, *sql: str) -> Harm:
    return harm(name, Code.CONTEXT, "context", *sql)


KEPT = (
    f"INSERT INTO assistant_contexts ({CONTEXT}) VALUES ('acme', '{{t}}', 3, 1, '{SECRET}', {AT})"
)

CONTEXTS = {
    "an idle thread has a context": _context(
        "everyday", KEPT, change("threads", "context_bytes = 7")
    ),
    "an idle thread has one and does not say so": _context("everyday", KEPT),
    "a closed thread has a context": _context("closed idle", KEPT),
    "an idle thread says that it has one": _context(
        "everyday", change("threads", "context_bytes = 7")
    ),
    "a context is gone": _context("kept", remove("contexts")),
    "a context is longer than the thread says": _context(
        "kept", change("contexts", f"state = '{SECRET * 9}'")
    ),
    "the thread says that it is longer": _context("kept", change("threads", "context_bytes = 99")),
    "a context is measured in characters": _context("kept", change("threads", "context_bytes = 8")),
    "a context is of another turn": _context("kept", change("contexts", "turn = 2")),
    "a context was put there under no fence": _context("kept", change("contexts", "fence = 0")),
    "a context was put there under a later fence": _context(
        "kept", change("contexts", "fence = 2")
    ),
    "a context belongs to no thread": harm(
        "empty", Code.STRAY, "thread", KEPT, remove("outbox"), remove("threads")
    ),
}


def _found(patient: Patient, done: Harm) -> None:
    patient.suffer(done.thread, *done.sql)
    found, _ = patient.examined(done.thread)
    assert (done.code, done.where) in {(finding.code, finding.where) for finding in found}
    assert SECRET not in "".join(finding.model_dump_json() for finding in found)


@pytest.mark.guarantee("G-RUN-10")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_cannot_be_true_is_found(patient: Patient, name: str) -> None:
    _found(patient, RUNS[name])


@pytest.mark.guarantee("G-RETRY-12")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_might_not_run_again_is_found(patient: Patient, name: str) -> None:
    _found(patient, CALLS[name])


@pytest.mark.guarantee("G-CTX-07")
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_context_that_may_not_be_there_is_found(patient: Patient, name: str) -> None:
    _found(patient, CONTEXTS[name])


@pytest.mark.guarantee("G-RUN-10")
def test_what_an_older_release_wrote_is_no_finding(patient: Patient) -> None:
    """It keeps neither the turn nor the reason of a run."""
    for name in ("everyday", "taken over", "recovered", "closed running"):
        patient.suffer(name, change("runs", "turn = 0, reason = NULL, usage = NULL"))
    patient.suffer("asked at last", change("runs", "turn = 0, reason = NULL", "fence = 2"))
    assert patient.examined()[0] == []
