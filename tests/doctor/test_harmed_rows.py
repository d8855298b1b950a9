"""Rows beside the log: each column that follows from the events is found when it does not."""

import pytest

from engine_assistant.doctor import Code
from tests.rig.patient import Harm, Patient, change, copied, harm, remove

AT = "'2030-06-01T00:00:00.000Z'"
ONES = "1" * 64
LEASE = f"run_id = 'run-1', stale_after = 15, lease_until = {AT}"
CALL = (
    "tenant_id, thread_id, call_id, turn, step, tool, state, provider_call_id, input_seq,"
    " input_digest, operation, version, expires_at, required, request_seq, request_digest,"
    " claimed_fence, claimed_attempt, claimed_at, result, created_at, updated_at"
)
INPUT = "tenant_id, thread_id, id, author_id, key, key_digest, state, turn, first_seq, last_seq"
OUTBOX = "tenant_id, thread_id, n, type, payload, created_at"
RUN = "tenant_id, thread_id, fence, run_id, state, started_at, ended_at"


def _thread(name: str, values: str) -> Harm:
    return harm(name, Code.THREAD_ROW, "thread", change("threads", values))


THREADS = {
    "an open turn is idle": _thread("running", "turn_state = 'idle'"),
    "an idle turn is open": _thread("everyday", f"turn_state = 'open', open_since = {AT}"),
    "a turn is open since another time": _thread("running", f"open_since = {AT}"),
    "a waiting turn has no deadline": _thread("waiting", "next_deadline = NULL"),
    "a waiting turn has another deadline": _thread("waiting", f"next_deadline = {AT}"),
    "the turns are miscounted": _thread("everyday", "turn = 2"),
    "the last activity is another": _thread("everyday", f"last_active_at = {AT}"),
    "an idle turn is asked to stop": _thread("everyday", f"interrupt_requested_at = {AT}"),
    "a closed thread never closed": _thread("closed idle", "closed_at = NULL"),
    "an open thread was closed": _thread("everyday", f"closed_at = {AT}"),
    "a thread's status is no word": _thread("everyday", "status = 'ajar'"),
    "a thread's turn is no word": _thread("everyday", "turn_state = 'ajar'"),
    "an idle thread has a lease": harm("everyday", Code.LEASE, "thread", change("threads", LEASE)),
    "a closed thread has a lease": harm(
        "closed idle", Code.LEASE, "thread", change("threads", LEASE)
    ),
    "a lease is there in part": harm(
        "running", Code.LEASE, "thread", change("threads", "lease_until = NULL")
    ),
    "a lease is somebody else's": harm(
        "running", Code.LEASE, "thread", change("threads", "run_id = 'run-9'")
    ),
    "a lease never ends": harm(
        "running", Code.LEASE, "thread", change("threads", "stale_after = 99999")
    ),
    "a lease has no run": harm("running", Code.LEASE, "thread", remove("runs")),
    "a lease's fence fell": harm("waiting", Code.RUN, "run 2", change("threads", "fence = 1")),
    "two runs are running": harm(
        "waiting", Code.RUN, "run 1", change("runs", "state = 'running'", "fence = 1")
    ),
    "a run has ended and none knows when": harm(
        "everyday", Code.RUN, "run 1", change("runs", "ended_at = NULL", "fence = 1")
    ),
    "a running run has ended": harm(
        "running", Code.RUN, "run 1", change("runs", f"ended_at = {AT}")
    ),
    "a run that finished was lost": harm(
        "everyday", Code.RUN, "thread", change("runs", "state = 'lost'", "fence = 2")
    ),
    "a run that was lost finished": harm(
        "taken over", Code.RUN, "thread", change("runs", "state = 'finished'", "fence = 1")
    ),
    "a run was closed with no closing": harm(
        "everyday", Code.RUN, "run 1", change("runs", "state = 'closed'", "fence = 1")
    ),
    "a run's state is no word": harm(
        "everyday", Code.RUN, "run 1", change("runs", "state = 'asleep'", "fence = 1")
    ),
    "a run holds a fence that never was": harm(
        "everyday",
        Code.RUN,
        "run 9",
        copied("runs", RUN, RUN.replace("fence", "9"), "fence = 1"),
    ),
    "a batch has another digest": harm(
        "everyday", Code.BATCH, "thread", change("threads", f"batch_digest = '{ONES}'")
    ),
    "a batch is described that was not": harm(
        "everyday", Code.BATCH, "thread", change("threads", "last_batch = 0")
    ),
    "a batch ends above the head": harm(
        "everyday", Code.BATCH, "thread", change("threads", "batch_last_seq = 99")
    ),
    "a batch is not described": harm(
        "everyday", Code.BATCH, "thread", change("threads", "batch_first_seq = NULL")
    ),
}

CALLS = {
    "a call's state is another": harm(
        "everyday",
        Code.CALL_STATE,
        "call c1",
        change("tool_calls", "state = 'failed'", "call_id = 'c1'"),
    ),
    "the states of two calls are swapped": harm(
        "quorum",
        Code.CALL_STATE,
        "call c2",
        change("tool_calls", "state = CASE call_id WHEN 'c1' THEN 'denied' ELSE 'done' END"),
    ),
    "a call's state is no word": harm(
        "everyday",
        Code.CALL_STATE,
        "call c1",
        change("tool_calls", "state = 'odd'", "call_id = 'c1'"),
    ),
    "a call is removed": harm(
        "everyday", Code.CALL_MISSING, "call c9", remove("tool_calls", "call_id = 'c9'")
    ),
    "a call is added": harm(
        "everyday",
        Code.CALL_STRAY,
        "call c0",
        copied("tool_calls", CALL, CALL.replace("call_id,", "'c0',", 1), "call_id = 'c1'"),
    ),
    "a result is another": harm(
        "everyday",
        Code.RESULT,
        "call c1",
        change("tool_calls", "result = '{\"output\":1}'", "call_id = 'c1'"),
    ),
    "a result is gone": harm(
        "everyday", Code.RESULT, "call c1", change("tool_calls", "result = NULL", "call_id = 'c1'")
    ),
    "a call that waits has a result": harm(
        "waiting",
        Code.RESULT,
        "call c1",
        change("tool_calls", "result = '{\"output\":1}'", "call_id = 'c1'"),
    ),
    "a late result on a closed thread is broken": harm(
        "closed running",
        Code.RESULT,
        "call c1",
        change("tool_calls", "result = '{\"output\": 1}'", "call_id = 'c1'"),
    ),
    "an ungated call ran under a later fence": harm(
        "taken over",
        Code.CLAIM,
        "event 3",
        change("tool_calls", "claimed_fence = 9", "call_id = 'c1'"),
    ),
    "an ungated call ran under an earlier fence": harm(
        "taken over",
        Code.CLAIM,
        "event 17",
        change("tool_calls", "claimed_fence = 1", "call_id = 'c4'"),
    ),
    "an ungated call ran under no fence": harm(
        "taken over",
        Code.CALL_ROW,
        "call c1",
        change("tool_calls", "claimed_fence = NULL", "call_id = 'c1'"),
    ),
} | {
    f"a call has another {column.split()[0]}": harm(
        "everyday", Code.CALL_ROW, "call c2", change("tool_calls", column, "call_id = 'c2'")
    )
    for column in (
        "turn = 2",
        "step = 's9'",
        "tool = 'delete'",
        "provider_call_id = 'call_zzz'",
        "input_seq = 7",
        f"input_digest = '{ONES}'",
        "operation = 'refunds/delete'",
        "version = 'v2'",
        "expires_at = '2039-01-01T00:00:00.000Z'",
        "required = 2",
        "request_seq = 9",
        f"request_digest = '{ONES}'",
        "claimed_fence = 3",
        "claimed_attempt = 2",
        f"claimed_at = {AT}",
        f"created_at = {AT}",
        f"updated_at = {AT}",
    )
}

OTHERS = {
    "a receipt is removed": harm("closed idle", Code.INPUT_MISSING, "", remove("inputs")),
    "a receipt is added": harm(
        "closed idle",
        Code.INPUT_STRAY,
        "input in0",
        copied("inputs", INPUT, INPUT.replace(" id", " 'in0'"), "turn = 1"),
    ),
    "a key is used twice": harm(
        "everyday",
        Code.INPUT_ROW,
        "",
        "DROP INDEX ix_assistant_inputs_key",
        change("inputs", "key = 'm1'", "key = 'm2'"),
    ),
    "a message has another text": harm(
        "everyday",
        Code.INPUT_ROW,
        "",
        change("events", "body = replace(body, 'thanks', 'thank')", "seq = 18"),
    ),
    "a file is removed": harm("everyday", Code.FILE, "event 1", remove("files")),
    "a file is another": harm(
        "everyday", Code.FILE, "event 1", change("files", f"sha256 = '{ONES}'")
    ),
    "a milestone is removed": harm(
        "everyday", Code.MILESTONE, "milestone 3", remove("outbox", "n = 3")
    ),
    "the newest milestone is removed": harm(
        "everyday", Code.MILESTONE, "milestone 10", remove("outbox", "n = 10")
    ),
    "a milestone is added": harm(
        "everyday",
        Code.MILESTONE,
        "milestone 11",
        copied("outbox", OUTBOX, OUTBOX.replace(" n", " 11"), "n = 1"),
    ),
    "milestones are miscounted": harm(
        "everyday", Code.MILESTONE, "thread", change("threads", "milestones = 9")
    ),
    "a milestone is of another type": harm(
        "everyday", Code.MILESTONE, "milestone 2", change("outbox", "type = 'turn-failed'", "n = 2")
    ),
    "a milestone cannot be read": harm(
        "everyday", Code.MILESTONE, "milestone 2", change("outbox", "payload = '{'", "n = 2")
    ),
    "a milestone says more than it may": harm(
        "everyday",
        Code.MILESTONE,
        "milestone 2",
        change("outbox", "payload = replace(payload, '{', '{\"text\":\"x\",')", "n = 2"),
    ),
    "a milestone says something else": harm(
        "everyday",
        Code.MILESTONE,
        "milestone 2",
        change("outbox", "payload = replace(payload, '\"turn\":1', '\"turn\":2')", "n = 2"),
    ),
    "a milestone is of another time": harm(
        "everyday", Code.MILESTONE, "milestone 2", change("outbox", f"created_at = {AT}", "n = 2")
    ),
    "a thread changes hands": harm(
        "everyday", Code.MILESTONE, "milestone 1", change("threads", "subject_id = 'usr_mallory'")
    ),
    "a thread is removed": harm("everyday", Code.STRAY, "thread", remove("threads")),
    "a thread is removed that had said little": harm(
        "empty", Code.STRAY, "thread", remove("threads")
    ),
} | {
    f"a receipt has another {column.split()[0]}": harm(
        "closed idle", Code.INPUT_ROW, "", change("inputs", column)
    )
    for column in (
        "author_id = 'usr_mallory'",
        f"key_digest = '{ONES}'",
        "state = 'queued'",
        "turn = 2",
        "first_seq = 2",
        "last_seq = 3",
    )
}

HARMS = THREADS | CALLS | OTHERS


@pytest.mark.guarantee("G-DOCTOR-04")
@pytest.mark.parametrize("name", HARMS)
def test_the_harm_is_found(patient: Patient, name: str) -> None:
    done: Harm = HARMS[name]
    patient.suffer(done.thread, *done.sql)
    found, _ = patient.examined(done.thread)
    # The id of a receipt is minted anew in each record.
    places = {(finding.code, finding.where.partition("input 0")[0]) for finding in found}
    assert (done.code, done.where) in places


@pytest.mark.guarantee("G-DOCTOR-05")
def test_milestones_that_were_relayed_are_not_missed(patient: Patient) -> None:
    patient.suffer("everyday", remove("outbox", "n <= 3"))
    patient.suffer("quorum", remove("outbox"))
    assert patient.examined()[0] == []
