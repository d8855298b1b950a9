"""What was asked, answered and claimed: a forged piece is found, and so is a missing one."""

import pytest

from engine_assistant.doctor import Code
from tests.rig.patient import (
    Harm,
    Patient,
    added,
    becomes,
    body,
    change,
    copied,
    event,
    harm,
    headed,
    remove,
)

LATE = "created_at = '2031-01-01T00:00:00.000Z'"
ZEROS, ONES = "0" * 64, "1" * 64
CLAIMED = (
    '{"call_id":"c2","fence":1,"request_digest":"'
    + ZEROS
    + '","run_id":"run-1","type":"execution-claimed","version":"v1"}'
)
RESOLVED = (
    '{"approved":true,"approver":"usr_alice","call_id":"c2","digest":"'
    + ZEROS
    + '","missing":0,"state":"approved","type":"approval-resolved"}'
)
EVENT = "tenant_id, thread_id, seq, type, turn, body, created_at"
APPROVAL = (
    "tenant_id, thread_id, call_id, request_seq, approver_id, nonce, digest, state, decided_at,"
    " decided_seq, channel, reason"
)

HARMS = {
    "the request shows another input": harm(
        "everyday", Code.REQUEST, "event 10", body(10, '"amount":1.5', '"amount":2.5')
    ),
    "a byte of the input changes": harm(
        "everyday",
        Code.CALL_ROW,
        "call c2",
        body(9, '"order":1234567890123456789', '"order":1234567890123456788'),
    ),
    "a byte of the input changes under the request": harm(
        "everyday",
        Code.REQUEST,
        "event 10",
        body(9, '"order":1234567890123456789', '"order":1234567890123456788'),
    ),
    "the request is for another step": harm(
        "everyday", Code.REQUEST, "event 10", body(10, '"step":"s1"', '"step":"s2"')
    ),
    "the request requires more than it asks": harm(
        "everyday", Code.REQUEST, "event 10", body(10, '"required":1', '"required":2')
    ),
    "the request requires fewer": harm(
        "quorum", Code.CALL_ROW, "call c1", body(4, '"required":2', '"required":1')
    ),
    "the request asks somebody else": harm(
        "everyday", Code.DIGEST, "approval c2/usr_mallory", body(10, "usr_alice", "usr_mallory")
    ),
    "the request is of another version": harm(
        "everyday",
        Code.DIGEST,
        "approval c2/usr_alice",
        body(10, '"version":"v1"', '"version":"v2"'),
    ),
    "the request is for another operation": harm(
        "everyday",
        Code.DIGEST,
        "approval c2/usr_alice",
        body(10, "refunds/create", "refunds/delete"),
    ),
    "the request expires later": harm(
        "everyday",
        Code.DIGEST,
        "approval c2/usr_alice",
        body(10, '"expires_at":"2030', '"expires_at":"2039'),
    ),
    "a request is asked again with the old nonces": harm(
        "waiting",
        Code.REQUEST,
        "event 9",
        copied(
            "events",
            EVENT,
            EVENT.replace("seq", "9").replace(
                "body", """replace(body, '"requests"', '"reissue":true,"requests"')"""
            ),
            "seq = 4",
        ),
        headed(9),
    ),
    "the request had run out": harm("everyday", Code.EXPIRY, "event 10", event(10, LATE)),
    "somebody decides who was not asked": harm(
        "everyday", Code.DECISION, "event 12", body(12, "usr_alice", "usr_mallory")
    ),
    "the same person decides twice": harm(
        "quorum", Code.DECISION, "event 7", body(7, "usr_c", "usr_a")
    ),
    "a denial becomes an approval": harm(
        "quorum", Code.DECISION, "event 14", body(14, '"approved":false', '"approved":true')
    ),
    "a decision says that nothing is missing": harm(
        "quorum", Code.DECISION, "event 6", body(6, '"missing":1', '"missing":0')
    ),
    "a decision is about another digest": harm(
        "everyday",
        Code.DIGEST,
        "event 12",
        event(
            12,
            "body = replace(body, (SELECT digest FROM assistant_approvals"
            f" WHERE thread_id = '{{t}}'), '{ZEROS}')",
        ),
    ),
    "somebody decides what runs already": harm(
        "running", Code.DECISION, "event 12", added(12, "approval-resolved", RESOLVED), headed(12)
    ),
    "an approval comes too late": harm("everyday", Code.EXPIRY, "event 12", event(12, LATE)),
    "a claim has no approval": harm(
        "everyday",
        Code.CLAIM,
        "event 13",
        becomes(12, "text-delta", '{"text":"x","type":"text-delta"}'),
    ),
    "a claim has too few approvals": harm(
        "quorum",
        Code.CLAIM,
        "event 8",
        becomes(6, "text-delta", '{"text":"x","type":"text-delta"}'),
    ),
    "a call is claimed twice": harm(
        "running", Code.CLAIM, "event 12", added(12, "execution-claimed", CLAIMED), headed(12)
    ),
    "a claim is of another request": harm(
        "running", Code.DIGEST, "event 12", added(12, "execution-claimed", CLAIMED), headed(12)
    ),
    "a claim is of another version": harm(
        "everyday", Code.CLAIM, "event 13", body(13, '"version":"v1"', '"version":"v2"')
    ),
    "a claim comes too late": harm("everyday", Code.EXPIRY, "event 13", event(13, LATE)),
    "a claim is of a run that never was": harm(
        "everyday", Code.CLAIM, "event 13", body(13, '"run-2"', '"run-9"')
    ),
    "a claim is under a fence that never was": harm(
        "everyday", Code.CLAIM, "event 13", body(13, '"fence":2', '"fence":7')
    ),
    "the run that claimed is removed": harm(
        "everyday", Code.CLAIM, "event 13", remove("runs", "fence = 2")
    ),
    "an approval is forged": harm(
        "waiting",
        Code.APPROVAL_STATE,
        "approval c1/usr_alice",
        change("approvals", "state = 'approved'", "call_id = 'c1'"),
    ),
    "an approval is forged with its call": harm(
        "waiting",
        Code.CALL_STATE,
        "call c1",
        change("approvals", "state = 'approved'", "call_id = 'c1'"),
        change("tool_calls", "state = 'approved'", "call_id = 'c1'"),
    ),
    "a superseded approval lives again": harm(
        "reissue",
        Code.APPROVAL_STATE,
        "approval c1/usr_a",
        change("approvals", "state = 'pending'", "approver_id = 'usr_a'"),
    ),
    "an approval's state is no word": harm(
        "waiting",
        Code.APPROVAL_STATE,
        "approval c1/usr_alice",
        change("approvals", "state = 'maybe'", "call_id = 'c1'"),
    ),
    "an approval is removed": harm(
        "waiting",
        Code.APPROVAL_MISSING,
        "approval c2/usr_b",
        remove("approvals", "approver_id = 'usr_b'"),
    ),
    "an approval is added": harm(
        "waiting",
        Code.APPROVAL_STRAY,
        "approval c1/usr_mallory",
        copied(
            "approvals",
            APPROVAL,
            APPROVAL.replace("approver_id", "'usr_mallory'"),
            "call_id = 'c1'",
        ),
    ),
} | {
    f"an approval has another {column.split()[0]}": harm(
        "everyday",
        Code.APPROVAL_ROW,
        "approval c2/usr_alice",
        change("approvals", column),
    )
    for column in (
        "nonce = 'n'",
        f"digest = '{ONES}'",
        LATE.replace("created_at", "decided_at"),
        "decided_seq = 13",
        "channel = 'sms'",
        "reason = 'another'",
    )
}


@pytest.mark.guarantee("G-DOCTOR-03")
@pytest.mark.parametrize("name", HARMS)
def test_the_harm_is_found(patient: Patient, name: str) -> None:
    done: Harm = HARMS[name]
    patient.suffer(done.thread, *done.sql)
    found, _ = patient.examined(done.thread)
    assert (done.code, done.where) in {(finding.code, finding.where) for finding in found}
