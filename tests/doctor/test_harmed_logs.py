"""Whatever is done to the log by plain SQL, the doctor finds it and says where."""

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

WORD = '{"text":"x","type":"text-delta"}'
MESSAGE = '{"author":"usr_alice","input_id":"in1","text":"x","type":"user-message"}'
OUTPUT = '{"call_id":"c2","output":1,"type":"tool-output"}'
FOREIGN = '{"call_id":"c7","output":1,"type":"tool-output"}'
WAITS = '{"reason":"awaiting-approval","type":"turn-finish"}'
FINISHED = '{"reason":"done","type":"turn-finish"}'

HARMS = {
    "an event is removed": harm("everyday", Code.NUMBERS, "event 4", remove("events", "seq = 4")),
    "events are removed": harm(
        "everyday", Code.NUMBERS, "events 4 to 5", remove("events", "seq IN (4, 5)")
    ),
    "the first event is removed": harm(
        "everyday", Code.NUMBERS, "event 1", remove("events", "seq = 1")
    ),
    "the newest event is removed": harm(
        "everyday", Code.HEAD, "thread", remove("events", "seq = 26")
    ),
    "every event is removed": harm("everyday", Code.HEAD, "thread", remove("events")),
    "an event is numbered 0": harm(
        "everyday", Code.NUMBERS, "event 0", added(0, "text-delta", WORD)
    ),
    "an event is moved far away": harm(
        "everyday", Code.NUMBERS, "events 26 to 899999", event(26, "seq = 900000"), headed(900000)
    ),
    "the head is too far": harm("everyday", Code.HEAD, "thread", headed(27)),
    "an event stands above the head": harm(
        "running", Code.HEAD, "thread", added(12, "text-delta", WORD)
    ),
    "a body is cut": harm("everyday", Code.UNREADABLE, "event 4", event(4, "body = '{\"type\":'")),
    "a body lacks a field": harm(
        "everyday", Code.UNREADABLE, "event 4", event(4, 'body = \'{"type":"text-delta"}\'')
    ),
    "a body has a field too many": harm(
        "everyday", Code.UNREADABLE, "event 4", body(4, '"type"', '"more":1,"type"')
    ),
    "a body is a list": harm("everyday", Code.UNREADABLE, "event 4", event(4, "body = '[]'")),
    "a body is of no type": harm(
        "everyday",
        Code.UNREADABLE,
        "event 4",
        becomes(4, "text-delta", '{"body":{},"name":"x","type":"unknown"}'),
    ),
    "a body has a space": harm("everyday", Code.BYTES, "event 4", body(4, '":"', '": "')),
    "a body is in another order": harm(
        "everyday", Code.BYTES, "event 4", event(4, 'body = \'{"type":"text-delta","text":"x"}\'')
    ),
    "a body says a default": harm(
        "everyday", Code.BYTES, "event 8", body(8, '"output"', '"late":false,"output"')
    ),
    "a body has a key twice": harm(
        "everyday", Code.BYTES, "event 4", body(4, '{"text"', '{"text":"a","text"')
    ),
    "a body says its own number": harm(
        "everyday", Code.BYTES, "event 4", body(4, '{"text"', '{"seq":4,"text"')
    ),
    "the type beside the body is another": harm(
        "everyday", Code.TYPE, "event 4", event(4, "type = 'reasoning-delta'")
    ),
    "the type beside the body is none": harm(
        "everyday", Code.TYPE, "event 4", event(4, "type = 'text-delto'")
    ),
    "a newer type beside another newer one": harm(
        "running", Code.TYPE, "event 12", added(12, "newer", '{"type":"newest"}'), headed(12)
    ),
    "an event is of another turn": harm("everyday", Code.TURN, "event 20", event(20, "turn = 1")),
    "a turn of another stream": harm(
        "everyday", Code.STREAM_VERSION, "event 19", body(19, '"v":1', '"v":2')
    ),
    "a message has no turn-start": harm(
        "everyday", Code.ORDER, "event 19", becomes(19, "text-delta", WORD)
    ),
    "a turn-start has no message": harm(
        "everyday", Code.ORDER, "event 20", becomes(20, "turn-start", '{"type":"turn-start","v":1}')
    ),
    "the log ends with a message": harm(
        "everyday", Code.ORDER, "event 27", added(27, "user-message", MESSAGE, 4), headed(27)
    ),
    "a run writes after the turn rested": harm(
        "everyday", Code.ORDER, "event 27", added(27, "text-delta", WORD, 3), headed(27)
    ),
    "a run writes while the turn waits": harm(
        "waiting", Code.ORDER, "event 9", added(9, "text-delta", WORD), headed(9)
    ),
    "a turn waits for nobody": harm(
        "everyday", Code.ORDER, "event 17", becomes(17, "turn-finish", WAITS)
    ),
    "a waiting turn is finished by its run": harm(
        "waiting", Code.ORDER, "event 9", added(9, "turn-finish", FINISHED), headed(9)
    ),
    "a turn never rests": harm("everyday", Code.ORDER, "event 18", becomes(17, "text-delta", WORD)),
    "a message while a call waits": harm(
        "superseded", Code.ORDER, "event 10", becomes(9, "text-delta", WORD)
    ),
    "a message long after the calls were let go": harm(
        "lapsed", Code.ORDER, "event 18", event(18, "created_at = '2030-01-01T00:00:15.095Z'")
    ),
    "something is said on a closed thread": harm(
        "closed idle",
        Code.AFTER_CLOSE,
        "event 4",
        added(4, "user-message", MESSAGE, 2),
        headed(4),
    ),
    "a thread is closed inside its turn": harm(
        "without a run",
        Code.ORDER,
        "event 2",
        change("threads", "status = 'closed', closed_at = '2030-01-01T09:00:00.000Z'"),
    ),
    "a call has two results": harm(
        "running",
        Code.RESULT,
        "event 13",
        added(12, "tool-output", OUTPUT),
        added(13, "tool-output", OUTPUT),
        headed(13),
    ),
    "a late result comes twice": harm(
        "taken over",
        Code.RESULT,
        "event 21",
        added(21, "tool-output", OUTPUT.replace('"output"', '"late":true,"output"')),
        headed(21),
    ),
    "a result of a call that nobody proposed": harm(
        "running", Code.CALL_MOVE, "event 12", added(12, "tool-output", FOREIGN), headed(12)
    ),
    "a result of a call that waits": harm(
        "running",
        Code.CALL_MOVE,
        "event 12",
        added(12, "tool-output", OUTPUT.replace("c2", "c3")),
        headed(12),
    ),
    "a call of another tool under the same id": harm(
        "everyday", Code.CALL_MOVE, "event 7", body(7, '"refund"', '"delete"')
    ),
    "a closing is not recorded": harm(
        "closed running", Code.LEFT_OPEN, "call c1", becomes(8, "text-delta", WORD)
    ),
    "a call is closed as something it cannot become": harm(
        "closed running", Code.CALL_MOVE, "event 8", body(8, '"unknown"', '"cancelled"')
    ),
    "a call expires before its time": harm(
        "superseded",
        Code.EXPIRY,
        "event 8",
        body(8, '"superseded","type"', '"expired","type"'),
        body(8, '"state":"superseded"', '"state":"expired"'),
    ),
    "the newest batch has another text": harm(
        "running", Code.BATCH, "thread", body(11, '"two"', '"too"')
    ),
}


@pytest.mark.guarantee("G-DOCTOR-02")
@pytest.mark.parametrize("name", HARMS)
def test_the_harm_is_found(patient: Patient, name: str) -> None:
    done: Harm = HARMS[name]
    patient.suffer(done.thread, *done.sql)
    found, report = patient.examined(done.thread)
    assert (done.code, done.where) in {(finding.code, finding.where) for finding in found}
    assert report.findings == len(found)


@pytest.mark.guarantee("G-DOCTOR-06")
def test_an_event_of_a_newer_release_is_counted_and_is_no_finding(patient: Patient) -> None:
    patient.suffer("running", added(12, "newer", '{"more":[1],"type":"newer"}'), headed(12))
    found, report = patient.examined("running")
    assert found == []
    assert (report.events, report.unknown_events) == (12, 1)
