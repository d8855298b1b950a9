"""Messages that wait, and those that waited: what cannot be true of them is found."""

import pytest

from engine_assistant.doctor import Code
from tests.rig.patient import Harm, Patient, body, change, copied, event, harm, remove

INPUT = "an input"
"""Its id is minted anew in each record."""
COLUMNS = (
    "tenant_id, thread_id, id, author_id, key, key_digest, state, turn, first_seq, last_seq,"
    " when_busy, priority, position, joins, body, queued_at"
)
WAITS, ABSORBED, BACK = "state = 'queued'", "state = 'absorbed'", "state = 'cancelled'"
OPENED = "state = 'opened' AND position > 0"
SIX, SEVEN = f"{WAITS} AND position = 5", f"{WAITS} AND position = 6"
AT = "'2030-06-01T00:00:00.000Z'"


def _row(code: Code, values: str, where: str, thread: str = "queued") -> Harm:
    return harm(thread, code, INPUT, change("inputs", values, where))


def _line(*sql: str, thread: str = "queued") -> Harm:
    return harm(thread, Code.QUEUE, "thread", *sql)


HARMS = {
    # ------------------------------------------------ the line as a whole
    "the thread counts more": _line(change("threads", "queued = queued + 1")),
    "the thread counts fewer": _line(change("threads", "queued = 0")),
    "one that waits is gone": _line(remove("inputs", SEVEN)),
    "one that waits is there twice": _line(
        copied("inputs", COLUMNS, COLUMNS.replace(" id,", " '01ZZ',", 1), SIX)
    ),
    "two wait at one place": _line(change("inputs", "position = 5, joins = 5", SEVEN)),
    "one joins those of another priority": _line(change("inputs", "priority = 'next'", SEVEN)),
    "messages wait on an idle thread": _line(
        change("inputs", "state = 'queued'", BACK),
        change("threads", "queued = 2"),
        thread="closed busy",
    ),
    "a turn was opened by two that did not join": _line(
        change("inputs", "joins = 2", f"{OPENED} AND position = 2")
    ),
    "a turn was opened in another order": _line(
        change("inputs", "position = 7", f"{OPENED} AND position = 1")
    ),
    # ------------------------------------------------ one place in it
    "it joins one that came later": _row(Code.QUEUE, "joins = 9", SIX),
    "it joins none": _row(Code.QUEUE, "joins = 0", SIX),
    "it is not said why it waits": _row(Code.QUEUE, "when_busy = NULL", SIX),
    "it was to be refused and waits": _row(Code.QUEUE, "when_busy = 'refuse'", SIX),
    "what it was to do is no word": _row(Code.QUEUE, "when_busy = 'hope'", SIX),
    "its priority is no word": _row(Code.QUEUE, "priority = 'first'", SIX),
    "it is not said since when it waits": _row(Code.QUEUE, "queued_at = NULL", SIX),
    "what steers is not next": _row(
        Code.QUEUE, "priority = 'normal'", f"{WAITS} AND when_busy = 'steer'"
    ),
    "what interrupts is not next": _row(
        Code.QUEUE, "priority = 'normal'", f"{WAITS} AND when_busy = 'interrupt'"
    ),
    "it waits and never got in line": _row(
        Code.QUEUE,
        "position = 0, joins = 0, when_busy = NULL, queued_at = NULL, priority = 'normal'",
        SIX,
    ),
    **{
        f"what opened at once has a {column.split()[0]}": _row(Code.QUEUE, column, "position = 0")
        for column in (
            "joins = 1",
            "when_busy = 'queue'",
            "priority = 'next'",
            f"queued_at = {AT}",
        )
    },
    # ------------------------------------------------ what became of it
    "one that waits was opened": _row(Code.INPUT_STRAY, "state = 'opened'", SIX),
    "one that waits was absorbed": _row(Code.INPUT_STRAY, "state = 'absorbed'", SIX),
    "one that waits was taken back": _line(change("inputs", "state = 'cancelled'", SIX)),
    "one that was taken back waits": _row(Code.INPUT_ROW, "state = 'queued'", BACK),
    "one that was taken back still says something": _row(Code.INPUT_ROW, "body = '{}'", BACK),
    "one that was opened waits": _row(Code.INPUT_ROW, "state = 'queued'", OPENED),
    "one that was opened was absorbed": _row(Code.INPUT_ROW, "state = 'absorbed'", OPENED),
    "one that was opened was taken back": _row(Code.INPUT_ROW, "state = 'cancelled'", OPENED),
    "one that was opened still waits to be said": _row(Code.INPUT_ROW, "body = '{}'", OPENED),
    "one that was absorbed was opened": _row(Code.INPUT_ROW, "state = 'opened'", ABSORBED),
    "one that was absorbed was not to steer": _row(
        Code.INPUT_ROW, "when_busy = 'interrupt'", ABSORBED
    ),
    "one that was absorbed ends elsewhere": _row(Code.INPUT_ROW, "last_seq = 4", ABSORBED),
    "the receipt of one that was absorbed is gone": harm(
        "queued", Code.INPUT_MISSING, INPUT, remove("inputs", ABSORBED)
    ),
    **{
        f"one that waits has a {column.split()[0]}": _row(Code.INPUT_ROW, column, SIX)
        for column in ("turn = 3", "first_seq = 12", "last_seq = 12")
    },
    # ------------------------------------------------ what it will say
    "what it will say is gone": _row(Code.INPUT_ROW, "body = NULL", SIX),
    "what it will say cannot be read": _row(Code.INPUT_ROW, "body = '{'", SIX),
    "what it will say has other bytes": _row(Code.INPUT_ROW, "body = ' ' || body", SIX),
    "what it will say is another event": _row(
        Code.INPUT_ROW, """body = '{"text":"x","type":"text-delta"}'""", SIX
    ),
    "what it will say is another message's": _row(
        Code.INPUT_ROW, """body = replace(body, '"input_id":"01', '"input_id":"02')""", SIX
    ),
    "what it will say is another person's": _row(
        Code.INPUT_ROW, "body = replace(body, 'usr_alice', 'usr_bob')", SIX
    ),
    "its author is another": _row(Code.INPUT_ROW, "author_id = 'usr_bob'", SIX),
    "a file that it names is gone": harm("queued", Code.FILE, INPUT, remove("files")),
    "a file that it names is another": harm(
        "queued", Code.FILE, INPUT, change("files", "size = 8")
    ),
    # ------------------------------------------------ the log
    "what was absorbed is counted to the next turn": harm(
        "queued", Code.ORDER, "event 3", event(3, "turn = 2")
    ),
    "a turn that was given up ended otherwise": harm(
        "given up", Code.RUN, "thread", body(5, "abandoned", "model")
    ),
    "a turn-start between those that open a turn": harm(
        "queued",
        Code.ORDER,
        "event 11",
        event(10, """type = 'turn-start', body = '{"type":"turn-start","v":1}'"""),
    ),
}


@pytest.mark.guarantee("G-QUEUE-26")
@pytest.mark.parametrize("name", HARMS)
def test_the_harm_is_found(patient: Patient, name: str) -> None:
    done: Harm = HARMS[name]
    patient.suffer(done.thread, *done.sql)
    found, _ = patient.examined(done.thread)
    places = {
        (finding.code, INPUT if finding.where.startswith("input ") else finding.where)
        for finding in found
    }
    assert (done.code, done.where) in places


@pytest.mark.guarantee("G-QUEUE-26")
def test_a_queue_that_only_the_engine_moved_is_clean(patient: Patient) -> None:
    for name in ("queued", "given up", "closed busy"):
        assert patient.examined(name)[0] == []


@pytest.mark.guarantee("G-DOCTOR-08")
def test_a_finding_repeats_nothing_that_waits(patient: Patient) -> None:
    secret = "S3CRET"
    patient.suffer("queued", change("inputs", f"body = '{secret}', key = '{secret}'", SIX))
    found, _ = patient.examined("queued")
    assert [finding for finding in found if secret in finding.model_dump_json()] == []
    assert {finding.code for finding in found} == {Code.INPUT_ROW}
