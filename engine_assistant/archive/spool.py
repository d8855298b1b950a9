"""Where an archive waits: in memory up to a megabyte, then in a temporary file without a name.

An archive passes through one on its way out and in, so that no transaction waits for whoever reads
or sends it, and nothing is given or begun before all of it was checked.
"""

from tempfile import SpooledTemporaryFile
from typing import Final

__all__ = ["Spool", "new_spool"]

_IN_MEMORY: Final = 1024 * 1024

Spool = SpooledTemporaryFile[bytes]
"""Lines, written once and read from the beginning. Whoever has it closes it."""


def new_spool() -> Spool:
    """Return an empty one."""
    return SpooledTemporaryFile(_IN_MEMORY)
