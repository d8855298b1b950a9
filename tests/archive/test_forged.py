"""Whoever writes an archive by hand can make its digests. What it says is judged all the same."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from engine_assistant import Assistant, Conflict, ValidationFailed
from engine_assistant.archive.sections import SECTIONS
from tests.rig.archives import Value, archive_of, contents, keeper, line_of, sealed, value_of
from tests.rig.record import Record

Change = Callable[[Value], object]


def _changed(archive: bytes, kind: str, at: int, change: Change) -> bytes:
    """Change the nth row of a kind, and seal the archive again."""
    lines = archive.splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.startswith(f'{{"{kind}"'.encode())]
    value = value_of(lines[places[at]])
    row = value if kind == "archive" else value[kind]
    assert isinstance(row, dict)
    change(row)
    lines[places[at]] = line_of(value)
    return sealed(lines)


def _says(**values: object) -> Change:
    return lambda row: row.update(values)


def _inside(name: str, **values: object) -> Change:
    def change(row: Value) -> None:
        inner = row[name]
        assert isinstance(inner, dict)
        inner.update(values)

    return change


FORGERIES: dict[str, tuple[str, int, Change]] = {
    "another tenant": ("archive", 0, _says(origin_tenant="someone")),
    "another state": ("call", 1, _says(state="failed")),
    "another result": ("call", 1, _says(result={"output": "paid"})),
    "another input": ("event", 12, _inside("body", input={"order": 8})),
    "another message": ("event", 0, _inside("body", text="No.")),
    "another decision": ("approval", 0, _says(state="denied")),
    "another digest": ("approval", 0, _says(digest="0" * 64)),
    "another author": ("input", 0, _says(author_id="usr_bob")),
    "another file": ("file", 0, _says(sha256="1" * 64)),
    "another run": ("run", 1, _says(run_id="run-9")),
    "a run that never ended": ("run", 1, _says(state="running", ended_at=None)),
    "another turn": ("archive", 0, _inside("thread", turn=9)),
    "a milestone more": ("archive", 0, _inside("thread", milestones=99)),
    "closed in words only": ("archive", 0, _inside("thread", status="closed")),
    "a time of its own": (
        "archive",
        0,
        _inside("thread", last_active_at="2031-01-01T00:00:00.000Z"),
    ),
    "a queue of nobody": ("archive", 0, _inside("thread", queued=1)),
}


@pytest.mark.guarantee("G-ARCH-12")
@pytest.mark.parametrize("name", FORGERIES)
def test_a_thread_that_cannot_be_is_refused(
    sqlite_record: Record, small: Assistant, name: str
) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    kind, at, change = FORGERIES[name]
    with pytest.raises(ValidationFailed) as refused:
        small.import_thread(keeper(), [_changed(archive, kind, at, change)], cancel_open=True)
    assert "cannot be as the archive says" in refused.value.message
    assert refused.value.facts["thread_id"] == sqlite_record.threads["everyday"]
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-12")
@pytest.mark.parametrize(
    "changes",
    [
        # Two messages of one author under one key, and an ungated call that waits for people.
        [("input", at, _says(key="m1")) for at in range(3)],
        [("call", 0, _says(state="awaiting-approval"))],
    ],
    ids=["keys", "states"],
)
def test_rows_that_the_tables_do_not_admit_are_refused(
    sqlite_record: Record, target: Assistant, changes: list[tuple[str, int, Change]]
) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    for change in changes:
        archive = _changed(archive, *change)
    with pytest.raises(ValidationFailed, match="contradict each other"):
        target.import_thread(keeper(), [archive], cancel_open=True)
    assert not any(contents(target.engine).values())


MOST = 2**63 - 1

UNFIT: dict[str, tuple[str, str, int, Change]] = {
    "a fence without a next": ("everyday", "archive", 0, _inside("thread", fence=MOST)),
    "a turn without a next": ("everyday", "archive", 0, _inside("thread", turn=MOST)),
    "milestones without a next": ("everyday", "archive", 0, _inside("thread", milestones=MOST)),
    "a run without a next": ("everyday", "run", 0, _says(fence=MOST)),
    "a message without a next": ("everyday", "input", 0, _says(position=MOST)),
    "a summary without a next": ("summarised", "compaction", 0, _says(n=MOST)),
    "a summary with NUL": ("summarised", "compaction", 0, _says(summary="a\0b")),
    "an empty summary": ("summarised", "compaction", 0, _says(summary="")),
    "too long a summary": ("summarised", "compaction", 0, _says(summary="x" * 262_145)),
    "a title with NUL": ("everyday", "archive", 0, _inside("thread", title="a\0b")),
    "a key with NUL": ("everyday", "input", 0, _says(key="a\0b")),
    "a tool with NUL": ("everyday", "call", 0, _says(tool="a\0b")),
    "a nonce with NUL": ("everyday", "approval", 0, _says(nonce="a\0b")),
    "a reason with NUL": ("everyday", "approval", 0, _says(reason="a\0b")),
    "a run's reason with NUL": ("everyday", "run", 0, _says(reason="a\0b")),
    "a file name with NUL": ("everyday", "file", 0, _says(filename="a\0b")),
    "a type of file with NUL": ("everyday", "file", 0, _says(content_type="a\0b")),
}


@pytest.mark.guarantee("G-ARCH-23")
@pytest.mark.parametrize("name", UNFIT)
def test_what_no_column_holds_or_goes_on_from_is_refused_at_its_line(
    sqlite_record: Record, target: Assistant, name: str
) -> None:
    thread, kind, at, change = UNFIT[name]
    whole = archive_of(sqlite_record.assistant, sqlite_record.threads[thread])
    forged = _changed(whole, kind, at, change)
    pairs = enumerate(zip(whole.splitlines(), forged.splitlines(), strict=True), 1)
    with pytest.raises(ValidationFailed, match="cannot hold what it holds") as refused:
        target.import_thread(keeper(), [forged])
    assert refused.value.facts["line"] == next(n for n, (old, new) in pairs if old != new)
    assert not any(contents(target.engine).values())


@pytest.mark.guarantee("G-ARCH-23")
def test_every_text_that_is_a_column_is_read_as_one() -> None:
    """JSON may hold NUL, which it escapes; no other text of a row may."""
    given_by_callers = {"size", "claimed_attempt"}
    for section in SECTIONS:
        for name, kind in section.fields.__annotations__.items():
            unfit: list[object] = ["a\0b"] if name in given_by_callers else ["a\0b", MOST]
            for value in unfit:
                with pytest.raises(ValidationError):
                    TypeAdapter(kind).validate_python(value)


@pytest.mark.guarantee("G-ARCH-23", "G-DOCTOR-13")
def test_the_doctor_finds_a_summary_that_no_other_database_could_hold(
    sqlite_record: Record, small: Assistant
) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["summarised"])
    small.import_thread(keeper(), [archive])
    with small.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE assistant_compactions SET summary = 'a' || char(0) WHERE n = 1")
        )
    (found,) = small.doctor()
    assert (found.code.value, found.where) == ("compaction", "compaction 1")


# ---------------------------------------------------------------- anything else


ODD = st.sampled_from(
    [
        None,
        True,
        "",
        "usr_bob",
        "done",
        "\0",
        "x" * 129,
        0,
        -1,
        1,
        7,
        2**63 - 1,
        1.5,
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999Z",
        "2030-02-30T00:00:00.000Z",
        [],
        {},
        "0" * 64,
    ]
)


TENANTS = count()


def _places(value: object, here: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Walk every place of a value at which another one could stand."""
    if here:
        yield here
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*here, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _places(inner, (*here, at))


def _put(value: object, place: tuple[object, ...], odd: object) -> None:
    *way, last = place
    for step in way:
        value = value[step]  # type: ignore[index]
    value[last] = odd  # type: ignore[index]


@pytest.mark.guarantee("G-ARCH-12")
@settings(
    max_examples=70,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_other_value_anywhere_is_refused_or_is_a_whole_thread(
    sqlite_record: Record, target: Assistant, data: st.DataObject
) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])
    lines = archive.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    value = value_of(lines[at])
    _put(value, data.draw(st.sampled_from(list(_places(value)))), data.draw(ODD))
    forged = sealed([*lines[:at], line_of(value), *lines[at + 1 :]])
    tenant = f"tenant-{next(TENANTS)}"
    try:
        imported = target.import_thread(keeper(tenant), [forged])
    except (ValidationFailed, Conflict):
        assert not any(contents(target.engine, tenant).values())
    else:
        assert imported.created
        assert archive_of(target, imported.thread_id, tenant) == forged
        assert list(target.doctor(tenant=tenant)) == []
