"""Summaries and what a thread began with: whatever is done to them by plain SQL is found."""

from dataclasses import asdict

import pytest

from engine_assistant.doctor import Code
from engine_assistant.doctor.compactions import Cuts
from engine_assistant.doctor.findings import Notes
from tests.rig.logs import (
    STEP,
    claimed,
    closed,
    log,
    output,
    propose,
    retried,
    say,
    summary,
    word,
)
from tests.rig.patient import Harm, Patient, becomes, change, event, harm, remove

SEED = '{"role":"user","text":"x","type":"seeded-message"}'
WORD = '{"text":"x","type":"text-delta"}'
SUMMARY = "tenant_id, thread_id, n, from_seq, to_seq, summary, created_at"


def _summary(n: int, values: str, found: int | None = None, thread: str = "summarised") -> Harm:
    where = f"compaction {found or n}"
    return harm(thread, Code.COMPACTION, where, change("compactions", values, f"n = {n}"))


def _made(thread: str, first: int, last: int) -> Harm:
    """Add a summary to a thread that has none."""
    sql = (
        f"INSERT INTO assistant_compactions ({SUMMARY}) SELECT tenant_id, id, 1, {first}, {last},"
        " 'x', created_at FROM assistant_threads WHERE id = '{t}'"
    )
    return harm(thread, Code.COMPACTION, "compaction 1", sql)


HARMS = {
    "a summary begins within an answer": _summary(2, "from_seq = 5"),
    "a summary ends within an answer": _summary(2, "to_seq = 4"),
    "a summary ends between a call and its result": _summary(2, "to_seq = 6"),
    "a summary ends between two calls": _summary(2, "to_seq = 10"),
    "a summary ends before the first result": _summary(2, "to_seq = 11"),
    "a summary begins at a result": _summary(2, "from_seq = 7"),
    "a summary ends before a call is closed": _summary(4, "from_seq = 22"),
    "a summary stands for more than there is": _summary(4, "to_seq = 99"),
    "a summary stands for nothing": _summary(4, "from_seq = 25, to_seq = 24"),
    "a summary begins before the first event": _summary(3, "from_seq = 0"),
    "a summary stands for a part of another": _summary(4, "from_seq = 8"),
    "a summary within another is made after it": _summary(4, "from_seq = 2, to_seq = 3"),
    "a covered summary stands again": _summary(1, "covered_by = NULL"),
    "a summary is covered by another one": _summary(1, "covered_by = 2"),
    "a summary is covered by none that there is": _summary(4, "covered_by = 9"),
    "a summary is numbered anew": _summary(4, "n = 7", found=7),
    "a summary is removed": harm(
        "summarised", Code.COMPACTION, "compaction 3", remove("compactions", "n = 2")
    ),
    "a summary is empty": _summary(4, "summary = ''"),
    "a summary is too long": _summary(
        4, "summary = replace('{}', '{}', '{}')".format("x" * 64, "x" * 64, "y" * 300_000)
    ),
    "a summary stands for an answer that goes on": _made("let go", 1, 3),
    "a summary stands for a call that waits": _made("waiting", 1, 6),
    "a seed stands in a turn": harm(
        "seeded", Code.ORDER, "event 5", becomes(5, "seeded-message", SEED)
    ),
    "a seed stands where the first turn should begin": harm(
        "everyday", Code.ORDER, "event 19", becomes(19, "seeded-message", SEED)
    ),
    "something else stands before the first turn": harm(
        "seeded", Code.ORDER, "event 2", becomes(2, "text-delta", WORD)
    ),
    "a seed is counted to a turn": harm("seeded", Code.TURN, "event 2", event(2, "turn = 1")),
}


@pytest.mark.guarantee("G-DOCTOR-13")
@pytest.mark.parametrize("name", HARMS)
def test_the_harm_is_found(patient: Patient, name: str) -> None:
    done: Harm = HARMS[name]
    assert patient.examined(done.thread)[0] == []
    patient.suffer(done.thread, *done.sql)
    found, _ = patient.examined(done.thread)
    assert (done.code, done.where) in {(finding.code, finding.where) for finding in found}


@pytest.mark.guarantee("G-DOCTOR-13")
@pytest.mark.parametrize(("first", "last"), [(1, 2), (3, 7), (1, 12), (15, 15), (1, 25)])
def test_a_summary_between_messages_is_no_finding(patient: Patient, first: int, last: int) -> None:
    patient.suffer("summarised", remove("compactions"), *_made("summarised", first, last).sql)
    assert patient.examined("summarised")[0] == []


CUT = {
    # bodies, the place of the cut, and whether it is good
    "before a result that is taken back": (
        (say(), propose("c"), word(), closed("c"), retried("c"), STEP),
        3,
        True,
    ),
    "before a result that comes again": (
        (say(), propose("c"), word(), closed("c"), retried("c"), output("c"), STEP),
        3,
        False,
    ),
    "before a result that somebody claimed again": (
        (say(), propose("c"), closed("c"), claimed("c"), STEP, output("c")),
        2,
        True,
    ),
    "behind a result that another one replaces": (
        (say(), propose("c"), closed("c"), retried("c"), output("c"), STEP),
        3,
        True,
    ),
    "behind a result": ((say(), propose("c"), output("c"), word(), STEP), 3, True),
    "behind a call that is proposed anew": ((say(), propose("c"), propose("c"), STEP), 2, False),
    "behind a call that was told, and is proposed anew": (
        (say(), propose("c"), STEP, propose("c"), word(), STEP),
        4,
        True,
    ),
    "within an answer, where the person spoke": ((say(), word(), say(), word(), STEP), 2, True),
    "within an answer that broke off": ((say(), word(), STEP, word(), STEP), 2, True),
    "within an answer that goes on": ((say(), word(), word(), STEP), 2, False),
    "behind a late result within an answer": (
        (say(), propose("c"), STEP, word(), output("c"), word(), STEP),
        5,
        False,
    ),
}


@pytest.mark.guarantee("G-DOCTOR-13")
@pytest.mark.parametrize("name", CUT)
def test_a_cut_is_judged_by_what_was_told(name: str) -> None:
    bodies, place, good = CUT[name]
    events, notes = log(*bodies), Notes("acme", "thr")
    cuts = Cuts(notes, [asdict(summary(1, 1, place))])
    for one in events:
        cuts.take(one, one.seq)
    cuts.finish(len(events))
    assert (notes.drain() == []) is good
