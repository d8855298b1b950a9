"""Reading conversations from files, one at a time, so that memory stays flat."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from engine_assistant.cli.replay.messages import conversation
from engine_assistant.cli.replay.script import Broken, Conversation
from engine_assistant.model.codec import JsonRefused, JsonValue, loads

__all__ = ["Found", "conversations"]

_LONGEST: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation, or why there is none, where it stands, and how many bytes were read."""

    place: str
    what: Conversation | Broken
    size: int


def conversations(path: Path) -> Iterator[Found]:
    """Read a file: `.json` as one document, anything else line by line."""
    with path.open("rb") as file:
        yield from _document(path, file) if path.suffix.lower() == ".json" else _lines(path, file)


def _lines(path: Path, file: BinaryIO) -> Iterator[Found]:
    number = 0
    while line := file.readline(_LONGEST + 1):
        number += 1
        size, place = len(line), f"{path}:{number}"
        if size > _LONGEST:
            while line and not line.endswith(b"\n"):
                line = file.readline(_LONGEST)
                size += len(line)
            yield Found(place, Broken(f"the line is longer than {_LONGEST} bytes"), size)
        elif line.strip():
            yield Found(place, _parsed(line.removeprefix(_BOM) if number == 1 else line), size)


def _document(path: Path, file: BinaryIO) -> Iterator[Found]:
    text = file.read()
    try:
        value = loads(text.removeprefix(_BOM))
    except JsonRefused as refusal:
        yield Found(f"{path}:1", Broken(str(refusal)), len(text))
        return
    several = isinstance(value, list) and not _are_messages(value)
    items = value if isinstance(value, list) and several else [value]
    for number, item in enumerate(items):
        # In a document there are no lines to count, so the place is a number in the list.
        place = f"{path}:{number + 1}"
        name = None if several else path.stem
        yield Found(place, _read(item, name), len(text) // len(items))
    if not items:
        yield Found(f"{path}:1", Broken("an empty list"), len(text))


def _are_messages(value: list[JsonValue]) -> bool:
    return bool(value) and isinstance(value[0], dict) and "role" in value[0]


def _parsed(line: bytes) -> Conversation | Broken:
    try:
        value = loads(line.rstrip(b"\r\n"))
    except JsonRefused as refusal:
        return Broken(str(refusal))
    return _read(value, None)


def _read(value: JsonValue, name: str | None) -> Conversation | Broken:
    try:
        return conversation(value, name)
    except Broken as broken:
        return broken
