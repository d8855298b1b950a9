"""Reading an archive line by line. What is wrong is refused with the number of its line.

A line is admitted when it is in its place and is, byte for byte, what is written for what it says.
So nothing that was read differs from what would be exported again. Memory holds one line.
"""

import hashlib
from typing import NoReturn, TypeVar

from pydantic import ValidationError

from engine_assistant.archive.format import (
    DEEPEST_LINE,
    THREAD,
    VERSION,
    CallFields,
    EventFields,
    Fields,
    Header,
    InputFields,
    Line,
    SectionEnd,
    ThreadEnd,
)
from engine_assistant.archive.sections import SECTIONS, Section
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonRefused, JsonValue
from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.machines import OPEN_CALLS, InputState, TurnState

__all__ = ["Reader", "head_of", "parsed", "refuse", "typed"]

L = TypeVar("L", bound=Line)


def refuse(line: int, why: str) -> NoReturn:
    """Refuse an archive because of one line. `why` never repeats what stands there.

    Raises:
        ValidationFailed: always.
    """
    raise ValidationFailed(f"Line {line} of the archive: {why}.", path="lines", line=line)


def parsed(line: bytes, number: int) -> dict[str, JsonValue]:
    """Return the object of a line that stands in the one form there is for it.

    Raises:
        ValidationFailed: it does not.
    """
    if not line.endswith(b"\n"):
        refuse(number, "it is cut off")
    try:
        value = codec.loads(line, depth=DEEPEST_LINE)
        written = codec.dumps(value).encode() + b"\n"
    except JsonRefused as refusal:
        reason = refusal.reason
    else:
        if isinstance(value, dict) and written == line:
            return value
        reason = "it is not written as the engine writes it"
    refuse(number, reason)


def typed(kind: type[L], value: JsonValue, number: int) -> L:
    """Return what a line says, with every field checked.

    Raises:
        ValidationFailed: a field is missing, unknown, or not what it may be.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "extra_forbidden":
        # Its name came with the file, and may be anything.
        refuse(number, "it has a field that this release does not know")
    how = "it lacks a field" if first["type"] == "missing" else "a field cannot hold what it holds"
    refuse(number, f"{how} ({'.'.join(map(str, first['loc']))})")


def head_of(value: dict[str, JsonValue], archive: str, number: int) -> None:
    """Check that a line is the head of such an archive, of a version that can be read.

    Raises:
        ValidationFailed: it is not; of a newer version it says so.
    """
    if value.get("archive") != archive:
        refuse(number, "no archive begins here")
    version = value.get("version")
    if type(version) is int and version > VERSION:
        refuse(
            number,
            f"a newer release wrote this archive: it is of version {version}, and this release"
            f" reads version {VERSION}",
        )


class Reader:
    """One thread's archive, taken line by line.

    Attributes:
        line: the number of the last line taken.
        header: the first line, once it was taken.
        events: how many were taken.
        unsettled: whether a turn, a call or a message in it is not over.
        digest: of the whole archive; None until its last line was taken.
    """

    def __init__(self, line: int = 0) -> None:
        """Begin after so many lines of a file."""
        self.line = line
        self.header: Header | None = None
        self.events = 0
        self.unsettled = False
        self.digest: str | None = None
        self._section = 0
        self._count = 0
        self._key: tuple[int | bytes, ...] = ()
        self._rows = hashlib.sha256()
        self._all = hashlib.sha256()

    def take(self, line: bytes) -> tuple[Section, Fields] | None:
        """Take the next line; return its row if it is one.

        Raises:
            ValidationFailed: it is not the line that can stand here.
        """
        self.line += 1
        value = parsed(line, self.line)
        row = None
        if self.header is None:
            head_of(value, THREAD, self.line)
            self._begin(typed(Header, value, self.line))
        elif self._section == len(SECTIONS):
            self._end(typed(ThreadEnd, value, self.line))
        else:
            section = SECTIONS[self._section]
            if "end" in value:
                self._end_section(section, typed(SectionEnd, value, self.line))
            else:
                row = self._row(section, value, line)
        self._all.update(line)
        return row

    def _begin(self, header: Header) -> None:
        self.header = header
        thread = header.thread
        self.unsettled = thread.turn_state is not TurnState.IDLE or thread.queued > 0

    def _row(
        self, section: Section, value: dict[str, JsonValue], line: bytes
    ) -> tuple[Section, Fields]:
        if value.keys() != {section.kind}:
            refuse(self.line, f"the {section.name} stand here, and it is none of them")
        fields = typed(section.fields, value[section.kind], self.line)
        key = section.key_of(fields)
        if self._count and key <= self._key:
            refuse(self.line, f"the {section.name} do not stand in their order")
        if isinstance(fields, EventFields) and fields.seq != self._count + 1:
            refuse(self.line, f"event {self._count + 1} should stand here")
        self._key = key
        self._count += 1
        self._rows.update(line)
        self.unsettled = self.unsettled or _is_open(fields)
        return section, fields

    def _end_section(self, section: Section, end: SectionEnd) -> None:
        if end.end != section.name:
            refuse(self.line, f"the {section.name} should end here")
        if end.count != self._count:
            refuse(self.line, f"it counts {end.count} {section.name}, and {self._count} stand here")
        if end.sha256 != self._rows.hexdigest():
            refuse(self.line, f"the {section.name} are not those of its digest")
        if section.name == "events":
            self.events = self._count
            if self.header is not None and self.header.thread.last_seq != self._count:
                refuse(self.line, "the events do not end with the number that the head names")
        self._section += 1
        self._count, self._key, self._rows = 0, (), hashlib.sha256()

    def _end(self, end: ThreadEnd) -> None:
        if self.digest is not None:
            refuse(self.line, "the archive has ended before it")
        if end.sha256 != self._all.hexdigest():
            refuse(self.line, "the lines before it are not those of its digest")
        self.digest = end.sha256


def _is_open(fields: Fields) -> bool:
    if isinstance(fields, CallFields):
        return fields.state in OPEN_CALLS
    return isinstance(fields, InputFields) and fields.state is InputState.QUEUED
