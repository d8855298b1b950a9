"""Where an archive waits: in memory up to a megabyte, then in a temporary file without a name.

An archive passes through one on its way out and in, so that no transaction waits for whoever reads
or sends it, and nothing is given or begun before all of it was checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import SpooledTemporaryFile
from typing import Final, Self

from engine_assistant.model.errors import Internal

__all__ = ["Spool"]

_IN_MEMORY: Final = 1024 * 1024


@contextmanager
def _at_hand() -> Iterator[None]:
    """Turn what the folder for temporary files refuses into an error of ours.

    Raises:
        Internal: there is no such folder, it is full, or it cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise Internal(
            "An archive waits in the folder for temporary files (TMPDIR), which does not take it.",
            error=type(error).__name__,
            errno=error.errno,
        ) from None


class Spool:
    """Lines, written once and read from the beginning. Whoever has it closes it."""

    def __init__(self) -> None:
        """Begin with nothing in it."""
        self._file = SpooledTemporaryFile[bytes](_IN_MEMORY)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the temporary file go."""
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Give the lines from the beginning."""
        with _at_hand():
            self._file.seek(0)
        while True:
            with _at_hand():
                line = self._file.readline()
            if not line:
                return
            yield line

    def write(self, line: bytes) -> None:
        """Add a line.

        Raises:
            Internal: it cannot be kept.
        """
        with _at_hand():
            self._file.write(line)

    def close(self) -> None:
        """Let the temporary file go, and with it what it would not take."""
        with suppress(OSError):
            self._file.close()
