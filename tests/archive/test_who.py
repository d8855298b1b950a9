"""Who exports and imports, a person's whole record, and several archives in one file."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import (
    AUDIT,
    RUN,
    USE,
    Assistant,
    Caller,
    Conflict,
    ConflictReason,
    Imported,
    Internal,
    NotFound,
    PermissionDenied,
    Refused,
    ValidationFailed,
)
from engine_assistant.store import tables
from tests.rig.archives import archive_of, contents, keeper, line_of, sealed, value_of
from tests.rig.record import TENANT, Record, output, words
from tests.rig.roles import acting_as_role


def _caller(name: str, *keys: str, tenant: str = TENANT, system: bool = False) -> Caller:
    return Caller(tenant=tenant, principal=name, permissions=set(keys), system=system)


@pytest.mark.guarantee("G-ARCH-14")
def test_the_owner_an_auditor_and_a_run_export(walked: Record) -> None:
    thread_id = walked.threads["everyday"]
    archive = archive_of(walked.assistant, thread_id)
    for caller in (
        _caller("usr_alice", USE),
        _caller("usr_auditor", USE, AUDIT),
        _caller("sys_robot", RUN, system=True),
    ):
        assert b"".join(walked.assistant.export_thread(caller, thread_id=thread_id)) == archive


@pytest.mark.guarantee("G-ARCH-14")
def test_nobody_else_learns_that_a_thread_is_there(walked: Record) -> None:
    thread_id = walked.threads["everyday"]
    for caller in (
        # An approver is asked about a call, and does not own the thread.
        _caller("usr_a", USE),
        _caller("usr_alice", USE, tenant="other"),
        _caller("sys_robot", RUN, tenant="other", system=True),
    ):
        with pytest.raises(NotFound) as missing:
            next(walked.assistant.export_thread(caller, thread_id=thread_id))
        with pytest.raises(NotFound) as absent:
            next(walked.assistant.export_thread(caller, thread_id="nope"))
        assert missing.value.to_dict() == absent.value.to_dict()
    for nobody in (_caller("usr_alice"), _caller("usr_alice", AUDIT)):
        with pytest.raises(PermissionDenied):
            next(walked.assistant.export_thread(nobody, thread_id=thread_id))
        with pytest.raises(PermissionDenied):
            next(walked.assistant.export_subject(nobody, subject="usr_alice"))
    with pytest.raises(ValidationFailed):
        next(walked.assistant.export_thread(keeper(), thread_id=""))


@pytest.mark.guarantee("G-ARCH-14")
def test_only_a_run_imports(sqlite_record: Record, target: Assistant) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    taken: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        taken.append(archive)
        yield archive

    for caller in (_caller("usr_alice", USE, AUDIT), _caller("sys", USE, AUDIT, system=True)):
        with pytest.raises(PermissionDenied):
            target.import_thread(caller, pieces())
        with pytest.raises(PermissionDenied):
            next(target.import_threads(caller, pieces()))
    assert taken == []
    assert not any(contents(target.engine).values())


@pytest.mark.guarantee("G-ARCH-02")
def test_what_is_private_is_in_no_archive(engine: sa.Engine) -> None:
    record = Record(engine)
    story = record.open("private").say().take()
    held = {"thread_id": story.thread_id, "run_id": story.run_id, "fence": story.fence}
    record.bot.put_context(**held, state="PR1VATE")
    archive = archive_of(record.assistant, story.thread_id)
    there = record.assistant
    there.import_thread(keeper("the-reader"), [archive], cancel_open=True)
    again = archive_of(there, story.thread_id, "the-reader")
    with engine.connect() as connection:
        until = connection.scalar(sa.select(tables.threads.c.lease_until).limit(1))
    for lines in (archive, again):
        assert b"PR1VATE" not in lines
        assert b"the-reader" not in lines
        assert f"{until:%H:%M:%S}".encode() not in lines
    assert contents(engine, "the-reader")["assistant_contexts"] == []


@pytest.mark.guarantee("G-ARCH-06")
def test_what_is_here_already_is_not_replaced(sqlite_record: Record, target: Assistant) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    head, *rest = archive.splitlines(keepends=True)
    value = value_of(head)
    value["thread"] = {**value["thread"], "title": "Another"}
    target.import_thread(keeper(), [sealed([line_of(value), *rest])])
    before = contents(target.engine)
    for cancel_open in (False, True):
        with pytest.raises(Conflict) as refused:
            target.import_thread(keeper(), [archive], cancel_open=cancel_open)
        assert refused.value.reason is ConflictReason.THREAD_EXISTS
    assert contents(target.engine) == before


@pytest.mark.guarantee("G-ARCH-06")
def test_a_key_opens_one_thread(engine: sa.Engine) -> None:
    record = Record(engine)
    thread_id = record.person().create_thread(key="case-7").id
    archive = archive_of(record.assistant, thread_id)
    person = _caller("usr_alice", USE, tenant="elsewhere")
    record.assistant.acting_as(person).create_thread(key="case-7")
    with pytest.raises(Conflict) as refused:
        record.assistant.import_thread(keeper("elsewhere"), [archive])
    assert refused.value.reason is ConflictReason.KEY_REUSED
    assert len(contents(engine, "elsewhere")["assistant_threads"]) == 1


# ---------------------------------------------------------------- a person


@pytest.mark.guarantee("G-ARCH-15")
def test_a_person_gets_every_thread_and_nothing_of_others(engine: sa.Engine) -> None:
    record = Record(engine)
    story = (
        record.open("asked")
        .say()
        .take()
        .propose("c1")
        .ask("c1", "usr_bob")
        .answer("c1", by="usr_bob")
    )
    story.claim("c1").write(output("c1")).rest()
    record.open("closed").close()
    bobs = record.person("usr_bob").create_thread(title="B0B").id
    file = list(record.assistant.export_subject(_caller("usr_alice", USE), subject="usr_alice"))
    head, *lines, end = file
    assert value_of(head) == {
        "archive": "engine-assistant/subject",
        "subject_id": "usr_alice",
        "version": 1,
    }
    ids = sorted(record.threads.values())
    assert b"".join(lines) == b"".join(archive_of(record.assistant, one) for one in ids)
    assert value_of(end)["threads"] == 2
    # What Bob decided in a thread of Alice is hers; what Bob owns is not.
    assert b"usr_bob" in b"".join(file)
    assert b"B0B" not in b"".join(file)
    bring = record.assistant.import_threads
    his = record.assistant.export_subject(keeper(), subject="usr_bob")
    (one,) = bring(keeper("elsewhere"), his)
    assert (one.thread_id, one.events, one.created) == (bobs, 0, True)
    outcomes = list(bring(keeper("elsewhere"), file))
    assert [(one.thread_id, one.created) for one in outcomes] == [(one, True) for one in ids]
    assert list(record.assistant.doctor()) == []


@pytest.mark.guarantee("G-ARCH-15")
def test_another_person_s_threads_need_a_key(walked: Record) -> None:
    with pytest.raises(PermissionDenied):
        next(walked.assistant.export_subject(_caller("usr_bob", USE), subject="usr_alice"))
    mine = list(walked.assistant.export_subject(_caller("usr_alice", USE), subject="usr_alice"))
    for caller in (_caller("usr_auditor", USE, AUDIT), keeper()):
        assert list(walked.assistant.export_subject(caller, subject="usr_alice")) == mine


@pytest.mark.guarantee("G-ARCH-15")
def test_nobody_s_threads_are_a_whole_file_too(target: Assistant) -> None:
    file = list(target.export_subject(_caller("usr_new", USE), subject="usr_new"))
    assert len(file) == 2
    assert list(target.import_threads(keeper(), file)) == []
    with pytest.raises(ValidationFailed, match="no archive"):
        target.import_thread(keeper(), file)


@pytest.mark.guarantee("G-ARCH-15")
def test_a_file_that_was_cut_between_two_threads_is_noticed(
    sqlite_record: Record, target: Assistant
) -> None:
    file = list(
        sqlite_record.assistant.export_subject(_caller("usr_alice", USE), subject="usr_alice")
    )
    cut = file.index(next(line for line in file if b'"end":"thread"' in line)) + 1
    taken = target.import_threads(keeper(), file[:cut])
    assert next(taken).created
    with pytest.raises(ValidationFailed) as refused:
        next(taken)
    assert refused.value.facts["line"] == cut + 1
    end = value_of(file[-1])
    for line in (line_of({**end, "threads": 2}), line_of({**end, "sha256": "0" * 64})):
        taken = target.import_threads(keeper(), [*file[:cut], line])
        assert not next(taken).created
        with pytest.raises(ValidationFailed):
            next(taken)


# ---------------------------------------------------------------- several


@pytest.mark.guarantee("G-ARCH-16")
def test_one_that_is_refused_does_not_keep_the_others_out(
    sqlite_record: Record, target: Assistant
) -> None:
    names = ("everyday", "waiting", "quorum", "running", "lapsed")
    archives = [archive_of(sqlite_record.assistant, sqlite_record.threads[name]) for name in names]
    forged = archives[2].replace(b'"milestones":', b'"milestones":9')
    archives[2] = sealed(forged.splitlines(keepends=True))
    first, waiting, forged_one, running, last = target.import_threads(keeper(), archives)
    assert isinstance(first, Imported)
    assert isinstance(last, Imported)
    for one in (waiting, running):
        assert isinstance(one, Refused)
        assert one.error["reason"] == "archive_unsettled"
    assert isinstance(forged_one, Refused)
    assert forged_one.error["code"] == "validation_failed"
    assert forged_one.thread_id == sqlite_record.threads["quorum"]
    assert len(contents(target.engine)["assistant_threads"]) == 2


@pytest.mark.guarantee("G-ARCH-16", "G-ARCH-08")
def test_what_is_damaged_ends_a_file_and_what_came_before_is_in(
    sqlite_record: Record, target: Assistant
) -> None:
    good = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    bad = archive_of(sqlite_record.assistant, sqlite_record.threads["quorum"])
    taken = target.import_threads(keeper(), [good, bad[:-2]])
    assert next(taken).created
    with pytest.raises(ValidationFailed) as refused:
        next(taken)
    assert refused.value.facts["line"] == good.count(b"\n") + bad.count(b"\n")
    assert len(contents(target.engine)["assistant_threads"]) == 1


# ---------------------------------------------------------------- the record, and roles


@pytest.mark.guarantee("G-ARCH-13")
@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE assistant_events SET body = '{ }' WHERE seq = 2",
        "UPDATE assistant_events SET body = 'S3CRET' WHERE seq = 2",
        "DELETE FROM assistant_events WHERE seq = 2",
        "UPDATE assistant_threads SET last_seq = 9",
        "UPDATE assistant_runs SET run_id = ''",
        "UPDATE assistant_inputs SET key_digest = 'S3CRET'",
    ],
)
def test_a_broken_record_gives_nothing(engine: sa.Engine, harm: str) -> None:
    record = Record(engine)
    story = record.open("harmed").say().take().write(*words("hello")).rest()
    with engine.begin() as connection:
        connection.exec_driver_sql(harm)
    with pytest.raises(Internal) as broken:
        next(record.assistant.export_thread(keeper(), thread_id=story.thread_id))
    assert "doctor" in broken.value.message
    assert "S3CRET" not in str(broken.value.to_dict())


@pytest.mark.guarantee("G-ARCH-19")
def test_the_keeper_imports(sqlite_record: Record, postgres_url: str) -> None:
    with acting_as_role(postgres_url, "keeper") as as_keeper:
        assistant = Assistant(as_keeper)
        file = list(
            sqlite_record.assistant.export_subject(_caller("usr_alice", USE), subject="usr_alice")
        )
        outcomes = list(assistant.import_threads(keeper(), file, cancel_open=True))
        assert all(isinstance(one, Imported) and one.created for one in outcomes)
        assert len(outcomes) == len(sqlite_record.threads)
        thread_id = sqlite_record.threads["everyday"]
        assert archive_of(assistant, thread_id) == archive_of(sqlite_record.assistant, thread_id)
