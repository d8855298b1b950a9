"""A damaged archive is refused whole, with its line, and leaves no trace.

On SQLite alone where it is about the bytes: they are judged before any database is asked.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from engine_assistant import Assistant, ValidationFailed
from engine_assistant.archive.format import LONGEST_LINE
from tests.rig.archives import archive_of, contents, keeper, line_of, sealed, value_of
from tests.rig.record import Record


def _short(record: Record) -> bytes:
    """Answer the archive of a thread with a row of each kind, and few of them."""
    story = record.open("short")
    file = record.bot.register_file(
        thread_id=story.thread_id, filename="a", content_type="b", size=1, sha256="0" * 64
    )
    story.say("\N{SNOWMAN}", attachment_ids=[file.id]).take().propose("c1").ask("c1")
    story.rest("awaiting-approval").answer("c1", approved=False).take().rest()
    archive = archive_of(record.assistant, story.thread_id)
    record.assistant.engine.dispose()
    return archive


@pytest.fixture
def archive(tmp_path, migrated_file) -> Iterator[bytes]:
    from engine_assistant.engines import make_engine
    from engine_assistant.testing.databases import sqlite_file

    engine = make_engine(sqlite_file(tmp_path / "origin.db", migrated_file))
    yield _short(Record(engine))
    engine.dispose()


def _refused(small: Assistant, pieces: Iterable[bytes]) -> ValidationFailed:
    with pytest.raises(ValidationFailed) as refused:
        small.import_thread(keeper(), pieces)
    assert refused.value.facts["path"] == "lines"
    return refused.value


def _line(small: Assistant, pieces: Iterable[bytes]) -> object:
    return _refused(small, pieces).facts["line"]


@pytest.mark.guarantee("G-ARCH-08")
def test_any_byte_that_is_another_is_noticed(small: Assistant, archive: bytes) -> None:
    lines = len(archive.splitlines())
    for place, byte in enumerate(archive):
        line = archive.count(b"\n", 0, place) + 1
        flip = (0x01, 0x20, 0x80)[place % 3]
        changed = archive[:place] + bytes([byte ^ flip]) + archive[place + 1 :]
        # The line itself, or the one whose digest stands over it.
        assert line <= _line(small, [changed]) <= lines + 1, (place, flip)
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-08")
def test_any_line_that_is_gone_doubled_or_elsewhere_is_noticed(
    small: Assistant, archive: bytes
) -> None:
    lines = archive.splitlines(keepends=True)
    for at in range(len(lines)):
        _refused(small, [*lines[:at], *lines[at + 1 :]])
        _refused(small, [*lines[:at], lines[at], *lines[at:]])
        for other in range(at):
            swapped = lines.copy()
            swapped[at], swapped[other] = lines[other], lines[at]
            _refused(small, swapped)
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-08")
def test_an_archive_that_is_cut_off_is_noticed(small: Assistant, archive: bytes) -> None:
    for length in range(0, len(archive), 7):
        whole = archive.count(b"\n", 0, length)
        assert _line(small, [archive[:length]]) == whole + 1
    assert _line(small, []) == 1
    assert _line(small, [b"", b""]) == 1
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-08")
def test_what_comes_after_the_end_is_refused(small: Assistant, archive: bytes) -> None:
    lines = archive.count(b"\n")
    assert _line(small, [archive, b"\n"]) == lines + 1
    assert _line(small, [archive, b"x"]) == lines + 1
    error = _refused(small, [archive, archive])
    assert (error.facts["line"], "import_threads" in error.message) == (2 * lines, True)
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-08")
def test_the_same_value_in_other_words_is_refused(small: Assistant, archive: bytes) -> None:
    """There is one form of a line, so that what is imported is what would be exported."""
    head, *rest = archive.splitlines(keepends=True)
    others: list[Callable[[bytes], bytes]] = [
        lambda line: line.replace(b":", b": ", 1),
        lambda line: b" " + line,
        lambda line: line.replace(b"\n", b"\r\n"),
        lambda line: line.replace(b"acme", b"\\u0061cme"),
        lambda line: line.replace(b'"turn":1', b'"turn":1.0'),
        lambda line: line.replace(b'"version":1', b'"version":true'),
        lambda line: line.replace(b'"version":1', b'"version":"1"'),
        lambda line: line.replace(b'"key":null', b'"key":null,"key":null'),
        lambda line: b"\xef\xbb\xbf" + line,
        lambda line: line_of(dict(reversed(value_of(line).items())))[:-1] + b" \n",
    ]
    for other in others:
        assert other(head) != head
        assert _line(small, [other(head), *rest]) == 1
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-08")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "a newer release wrote this archive: it is of version 2"),
        ({"version": 0}, "a field cannot hold what it holds (version)"),
        ({"archive": "engine-assistant/subject"}, "it lacks a field (subject_id)"),
        ({"archive": "something/else"}, "no archive begins here"),
        ({"more": 1}, "it has a field that this release does not know"),
    ],
)
def test_another_head_is_refused(
    small: Assistant, archive: bytes, change: dict[str, object], said: str
) -> None:
    head, *rest = archive.splitlines(keepends=True)
    error = _refused(small, [sealed([line_of(value_of(head) | change), *rest])])
    assert error.facts["line"] == 1
    assert said in error.message


@pytest.mark.guarantee("G-ARCH-08")
def test_a_field_that_is_unknown_missing_or_wrong_is_refused(
    small: Assistant, archive: bytes
) -> None:
    lines = archive.splitlines(keepends=True)
    for at, line in enumerate(lines):
        (kind, row), *more = value_of(line).items()
        if more or not isinstance(row, dict):
            continue
        for change in (
            {**row, "S3CRET": 1},
            {name: value for name, value in row.items() if name != min(row)},
            {**row, max(row): ["S3CRET"]},
            {**row, max(row): "S3CRET\0"},
            {**row, max(row): 2**63},
        ):
            changed = [*lines[:at], line_of({kind: change}), *lines[at + 1 :]]
            error = _refused(small, [sealed(changed)])
            assert error.facts["line"] == at + 1
            assert "S3CRET" not in str(error.to_dict())
    assert not any(contents(small.engine).values())


@pytest.mark.guarantee("G-ARCH-08")
def test_a_line_without_an_end_is_not_read_into_memory(small: Assistant) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 65_536

    assert _line(small, endless()) == 1
    assert taken <= LONGEST_LINE // 65_536 + 1


@pytest.mark.guarantee("G-ARCH-08")
def test_lines_come_in_any_pieces(small: Assistant, archive: bytes) -> None:
    pieces = [archive[at : at + 3] for at in range(0, len(archive), 3)]
    assert small.import_thread(keeper(), pieces).created
    for whole in ([archive], archive.splitlines(keepends=True), [b"", archive, b""]):
        assert not small.import_thread(keeper(), whole).created


@pytest.mark.parametrize(
    "given", [["text"], b"bytes are numbers", [None], [bytearray(b"x")], None, 7]
)
def test_what_is_no_bytes_is_refused(small: Assistant, given: Iterable[bytes]) -> None:
    _refused(small, given)


NO_CALLER: Any = None


def test_who_is_no_caller_is_refused_at_every_door(small: Assistant) -> None:
    doors: list[Callable[[], object]] = [
        lambda: small.import_thread(NO_CALLER, []),
        lambda: list(small.import_threads(NO_CALLER, [])),
        lambda: list(small.export_thread(NO_CALLER, thread_id="t")),
        lambda: list(small.export_subject(NO_CALLER, subject="usr")),
        lambda: small.acting_as(NO_CALLER),
    ]
    for door in doors:
        with pytest.raises(ValidationFailed) as refused:
            door()
        assert refused.value.facts["path"] == "caller"
    with small.engine.connect() as connection, pytest.raises(ValidationFailed, match="a Caller"):
        small.bind(connection, NO_CALLER)
