"""A model endpoint that fails as it is told to: OpenAI's chat completions, streamed or whole.

    plan = FaultPlan(steps=[HttpError(status=429), StreamCut(after_bytes=40), Pass(text="Hello")])
    with FaultServer(plan) as server:
        ...  # any client of that API, with the base URL f"{server.url}/v1"
    assert server.calls == 3

The first call is served by the first step, the second by the second; the last one repeats.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from engine_assistant.testing.serving import EVENT_STREAM, JSON, LocalServer, Received, Reply

__all__ = [
    "BadJson",
    "ConnectionRefused",
    "FaultPlan",
    "FaultServer",
    "HttpError",
    "Pass",
    "Slow",
    "Step",
    "StreamCut",
    "TimeoutBeforeFirstByte",
    "UsageMissing",
]

ENDPOINT: Final = "/chat/completions"
DONE: Final = b"data: [DONE]\n\n"
BROKEN: Final = '{"choices": [{"index": 0, "delta": {"content": "o'
USAGE: Final[dict[str, JsonValue]] = {
    "prompt_tokens": 1,
    "completion_tokens": 1,
    "total_tokens": 2,
}
SHORTEST_PAUSE: Final = 0.001

Positive = Annotated[int, Field(strict=True, ge=1)]


class _Step(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pass(_Step):
    """Answers `text` in one piece, stops, and tells the usage: 1 token in, 1 out."""

    type: Literal["pass"] = "pass"
    text: str = "ok"


class ConnectionRefused(_Step):
    """Drops the connection and answers nothing."""

    type: Literal["connection-refused"] = "connection-refused"


class TimeoutBeforeFirstByte(_Step):
    """Is silent for so many `milliseconds`, at least 1, then answers as `Pass` does."""

    type: Literal["timeout-before-first-byte"] = "timeout-before-first-byte"
    milliseconds: Positive


class StreamCut(_Step):
    """Sends `after_bytes` of one piece of an answer, or less, and drops the connection."""

    type: Literal["stream-cut"] = "stream-cut"
    after_bytes: Annotated[int, Field(strict=True, ge=0)]


class HttpError(_Step):
    """Answers `status`, 400 to 599, with an error in JSON."""

    type: Literal["http-error"] = "http-error"
    status: Annotated[int, Field(strict=True, ge=400, le=599)]


class BadJson(_Step):
    """Answers status 200 and something that is no JSON; streamed, with the end marker after it."""

    type: Literal["bad-json"] = "bad-json"


class Slow(_Step):
    """Answers `text` word by word, `tokens_per_second`, stops, and tells no usage."""

    type: Literal["slow"] = "slow"
    tokens_per_second: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
    text: str

    @property
    def pause(self) -> float:
        """Seconds before each word: at least a millisecond."""
        return max(SHORTEST_PAUSE, 1 / self.tokens_per_second)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words, each with the space that follows it. Joined they are the text."""
        return tuple(re.findall(r"\s*\S+\s*|\s+", self.text))


class UsageMissing(_Step):
    """Answers as `Pass` does, and tells no usage."""

    type: Literal["usage-missing"] = "usage-missing"
    text: str = "ok"


Step: TypeAlias = (
    Pass
    | ConnectionRefused
    | TimeoutBeforeFirstByte
    | StreamCut
    | HttpError
    | BadJson
    | Slow
    | UsageMissing
)


class FaultPlan(BaseModel):
    """What each call meets. At least one step; as JSON each names its `type`.

    Raises:
        pydantic.ValidationError: no step, an unknown key, or a number out of its bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: tuple[Annotated[Step, Field(discriminator="type")], ...] = Field(min_length=1)

    def step(self, call: int) -> Step:
        """Return the step that serves a call, counted from 1."""
        return self.steps[min(call, len(self.steps)) - 1]


class FaultServer(LocalServer):
    """Serves a plan to every `POST …/chat/completions`, whatever the path before that."""

    def __init__(self, plan: FaultPlan) -> None:
        """Begin with the plan's first step."""
        super().__init__()
        self._plan = plan
        self._calls = 0

    @property
    def calls(self) -> int:
        """How many calls came in until now."""
        return self._calls

    async def answer(self, received: Received, reply: Reply) -> None:
        """Serve the step whose turn it is."""
        if received.method != "POST" or not received.path.endswith(ENDPOINT):
            await reply.error(HTTPStatus.NOT_FOUND, f"only POST …{ENDPOINT} is served here")
            return
        try:
            asked = received.json()
        except ValueError:
            await reply.error(HTTPStatus.BAD_REQUEST, "the request is no JSON")
            return
        self._calls += 1
        step = self._plan.step(self._calls)
        if isinstance(step, ConnectionRefused):
            return
        if isinstance(step, HttpError):
            await reply.error(step.status, f"the plan says {step.status}")
            return
        if isinstance(step, TimeoutBeforeFirstByte):
            await asyncio.sleep(step.milliseconds / 1000)
        given = asked if isinstance(asked, dict) else {}
        answer = _Answer(f"chatcmpl-{self._calls}", given.get("model"))
        streamed = given.get("stream") is True
        await (answer.stream(step, reply) if streamed else answer.whole(step, reply))


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer to one request."""

    id: str
    model: JsonValue

    # ------------------------------------------------------------ streamed

    async def stream(self, step: Step, reply: Reply) -> None:
        await reply.start(HTTPStatus.OK, EVENT_STREAM)
        if isinstance(step, StreamCut):
            await reply.send(self._said("ok")[: step.after_bytes])
            return
        if isinstance(step, BadJson):
            await reply.send(f"data: {BROKEN}\n\n".encode())
        elif isinstance(step, Slow):
            for token in step.tokens:
                await asyncio.sleep(step.pause)
                await reply.send(self._said(token))
            await reply.send(self._stop())
        else:
            for piece in self._pieces(step):
                await reply.send(piece)
        await reply.send(DONE)
        await reply.end()

    def _pieces(self, step: Step) -> Iterator[bytes]:
        yield self._said(_text(step))
        yield self._stop()
        if not isinstance(step, UsageMissing):
            yield self._chunk([], usage=USAGE)

    def _said(self, text: str) -> bytes:
        delta: JsonValue = {"role": "assistant", "content": text}
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def _stop(self) -> bytes:
        return self._chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])

    def _chunk(self, choices: list[JsonValue], **more: JsonValue) -> bytes:
        return f"data: {self._json('chat.completion.chunk', choices, **more)}\n\n".encode()

    # ------------------------------------------------------------ whole

    async def whole(self, step: Step, reply: Reply) -> None:
        if isinstance(step, BadJson):
            await reply.whole(HTTPStatus.OK, JSON, BROKEN.encode())
            return
        if isinstance(step, Slow):
            await asyncio.sleep(step.pause * len(step.tokens))
        message: JsonValue = {"role": "assistant", "content": _text(step)}
        choices: list[JsonValue] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        more = {} if isinstance(step, UsageMissing | Slow) else {"usage": USAGE}
        body = self._json("chat.completion", choices, **more).encode()
        await reply.start(HTTPStatus.OK, JSON, len(body))
        # What is missing of the length is what was cut; the last byte is never sent then.
        cut = min(step.after_bytes, len(body) - 1) if isinstance(step, StreamCut) else len(body)
        await reply.send(body[:cut])

    def _json(self, kind: str, choices: list[JsonValue], **more: JsonValue) -> str:
        head: dict[str, JsonValue] = {"id": self.id, "object": kind, "created": 0}
        return json.dumps({**head, "model": self.model, "choices": choices, **more})


def _text(step: Step) -> str:
    return step.text if isinstance(step, Pass | Slow | UsageMissing) else "ok"
