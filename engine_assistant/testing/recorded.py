"""Serves recorded traffic of real model providers, byte for byte.

A recording is a JSON file: a list of `{path, request, status, content_type, body}`. What a client
asks is not compared with what was asked then; it is kept in `requests`, for the test to look at.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from engine_assistant.testing.serving import LocalServer, Received, Reply

__all__ = ["Exchange", "RecordedServer", "read_recording"]


class Exchange(BaseModel):
    """One request, as it was made, and its answer.

    Attributes:
        path: may hold a query, which does not count.
        body: the answer. Its bytes are its UTF-8.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    request: JsonValue
    status: int = Field(ge=100, le=599)
    content_type: str
    body: str


_RECORDING: TypeAdapter[tuple[Exchange, ...]] = TypeAdapter(tuple[Exchange, ...])


def read_recording(file: Path) -> tuple[Exchange, ...]:
    """Read a recording.

    Raises:
        pydantic.ValidationError: it is not of that form.
        OSError: it cannot be read.
    """
    return _RECORDING.validate_json(file.read_bytes())


class RecordedServer(LocalServer):
    """Answers with a recording, for each path in its order.

    Whatever else is asked is answered with 404, and what is asked once too often with 410.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        """Begin with the first answer for each path."""
        super().__init__()
        self._left: dict[str, deque[Exchange]] = defaultdict(deque)
        for exchange in exchanges:
            self._left[exchange.path.partition("?")[0]].append(exchange)

    @property
    def left(self) -> int:
        """How many answers nobody has asked for."""
        return sum(len(answers) for answers in self._left.values())

    async def answer(self, received: Received, reply: Reply) -> None:
        """Serve the next answer for this path."""
        answers = self._left.get(received.path)
        if answers is None:
            await reply.error(HTTPStatus.NOT_FOUND, f"nothing was recorded for {received.path}")
        elif not answers:
            await reply.error(HTTPStatus.GONE, f"nothing is left for {received.path}")
        else:
            found = answers.popleft()
            await reply.whole(found.status, found.content_type, found.body.encode())
