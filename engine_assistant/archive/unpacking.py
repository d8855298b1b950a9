"""Taking a file in pieces: an archive in it is checked to its end before anything is done with it.

So a damaged archive begins no transaction, and what raced can be tried again.
"""

import hashlib
from collections.abc import Iterator

from engine_assistant.archive.format import (
    LONGEST_LINE,
    SUBJECT,
    Fields,
    Header,
    SubjectEnd,
    SubjectHeader,
)
from engine_assistant.archive.reading import Reader, head_of, parsed, refuse, typed
from engine_assistant.archive.sections import Section
from engine_assistant.archive.spool import Spool
from engine_assistant.model.errors import Internal, ValidationFailed

__all__ = ["Archive", "Unpacking"]


class Archive:
    """One thread's archive as it comes in, and then checked to its last line."""

    def __init__(self, before: int) -> None:
        """Begin after so many lines of the file."""
        self._before = before
        self._reader = Reader(before)
        self._file = Spool()

    def take(self, line: bytes) -> bool:
        """Take the next line; return whether it was the last.

        Raises:
            ValidationFailed: the line cannot stand here.
        """
        self._reader.take(line)
        self._file.write(line)
        return self._reader.digest is not None

    @property
    def header(self) -> Header:
        """What the first line says."""
        if self._reader.header is None:
            raise Internal("An archive is used before it was read.")
        return self._reader.header

    @property
    def digest(self) -> str:
        """The digest of the whole."""
        return self._reader.digest or ""

    @property
    def events(self) -> int:
        """How many events it holds."""
        return self._reader.events

    @property
    def unsettled(self) -> bool:
        """Whether a turn, a call or a message in it is not over."""
        return self._reader.unsettled

    def lines(self) -> Iterator[bytes]:
        """Give its lines, as they came."""
        yield from self._file

    def rows(self) -> Iterator[tuple[Section, Fields]]:
        """Give its rows in their order, read as they were the first time."""
        reader = Reader(self._before)
        for line in self.lines():
            row = reader.take(line)
            if row is not None:
                yield row

    def close(self) -> None:
        """Let the temporary file go."""
        self._file.close()


class Unpacking:
    """A file that comes in pieces: archives one after the other, or one person's in two lines."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self._cutting = _Cutting()
        self._archive: Archive | None = None
        self._whole: Archive | None = None
        self._archives = 0
        self._every = hashlib.sha256()
        self._of_subject = False
        self._over = False

    def feed(self, piece: bytes) -> Iterator[Archive]:
        """Take the next bytes, cut anywhere, and give each archive that ends in them.

        An archive is there until the next one is given.

        Raises:
            ValidationFailed: this is no archive, or it is damaged; `facts["line"]` says where.
        """
        for number, line in self._cutting.feed(piece):
            if self._over:
                refuse(number, "the file goes on after its end")
            if self._archive is None and self._is_around(number, line):
                continue
            self._every.update(line)
            self._archive = self._archive or Archive(number - 1)
            if self._archive.take(line):
                self._let_go(self._whole)
                self._whole, self._archive = self._archive, None
                self._archives += 1
                yield self._whole

    def feed_one(self, piece: bytes) -> None:
        """Take the next bytes of a file that must hold one archive, which `end_one` returns.

        Raises:
            ValidationFailed: as for `feed`, or a second archive ends in these bytes.
        """
        for _ in self.feed(piece):
            if self._archives > 1:
                refuse(self._cutting.line, "it ends a second one; import_threads takes several")

    def end(self) -> None:
        """Say that there are no more bytes.

        Raises:
            ValidationFailed: there was nothing, or something is missing.
        """
        broken_off = self._archive is not None or self._cutting.is_within_line
        if broken_off or (self._of_subject and not self._over):
            refuse(self._cutting.line + 1, "the file is cut off here")
        if not (self._archives or self._over):
            refuse(1, "there is no archive")

    def end_one(self) -> Archive:
        """Say that there are no more bytes, and return the archive that there was.

        Raises:
            ValidationFailed: there was none, or something is missing.
        """
        self.end()
        if self._whole is None:
            refuse(1, "there is no archive")
        return self._whole

    def close(self) -> None:
        """Let the temporary files go."""
        self._let_go(self._archive)
        self._let_go(self._whole)

    def _let_go(self, archive: Archive | None) -> None:
        if archive is not None:
            archive.close()

    def _is_around(self, number: int, line: bytes) -> bool:
        """Take a line that stands before or after the archives of one person."""
        value = parsed(line, number)
        if number == 1 and value.get("archive") == SUBJECT:
            head_of(value, SUBJECT, number)
            typed(SubjectHeader, value, number)
            self._of_subject = True
            self._every.update(line)
            return True
        if self._of_subject and "end" in value:
            end = typed(SubjectEnd, value, number)
            if end.threads != self._archives or end.sha256 != self._every.hexdigest():
                refuse(number, "the archives before it are not those of its digest")
            self._over = True
            return True
        return False


class _Cutting:
    """Cuts bytes into lines, and holds no more than one."""

    def __init__(self) -> None:
        self.line = 0
        self._parts: list[bytes] = []
        self._length = 0

    @property
    def is_within_line(self) -> bool:
        return self._length > 0

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Give each line that ends in these bytes, with its number."""
        if type(piece) is not bytes:
            raise ValidationFailed("An archive comes as bytes, in pieces.", path="lines")
        begin = 0
        while begin < len(piece):
            end = piece.find(b"\n", begin) + 1 or len(piece)
            self._parts.append(piece[begin:end])
            self._length += end - begin
            if self._length > LONGEST_LINE:
                refuse(self.line + 1, f"it is longer than {LONGEST_LINE} bytes")
            if piece.endswith(b"\n", begin, end):
                line, self._parts, self._length = b"".join(self._parts), [], 0
                self.line += 1
                yield self.line, line
            begin = end
