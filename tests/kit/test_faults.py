"""The fault server, asked by a client that knows HTTP and nothing else."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from engine_assistant.testing.faults import (
    BadJson,
    ConnectionRefused,
    FaultPlan,
    FaultServer,
    HttpError,
    Pass,
    Slow,
    Step,
    StreamCut,
    TimeoutBeforeFirstByte,
    UsageMissing,
)

PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def serving(*steps: Step) -> FaultServer:
    return FaultServer(FaultPlan(steps=steps))


@dataclass
class Answer:
    status: int
    content_type: str
    body: bytes
    cut: bool = False

    @property
    def lines(self) -> list[str]:
        """The data of each event."""
        events = self.body.decode().split("\n\n")
        assert events.pop() == ""
        return [event.removeprefix("data: ") for event in events]

    @property
    def chunks(self) -> list[Any]:
        *chunks, end = self.lines
        assert end == "[DONE]"
        return [json.loads(chunk) for chunk in chunks]

    @property
    def said(self) -> list[str]:
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]
        return [delta["content"] for delta in deltas if "content" in delta]


def ask(server: FaultServer, *, stream: bool = True, path: str = PATH) -> Answer:
    client = http.client.HTTPConnection(str(urlsplit(server.url).netloc), timeout=10)
    try:
        asked = {"model": "m-1", "stream": stream, "messages": []}
        client.request("POST", path, json.dumps(asked), {"content-type": "application/json"})
        answer = client.getresponse()
        try:
            body, cut = answer.read(), False
        except http.client.IncompleteRead as error:
            body, cut = error.partial, True
        return Answer(answer.status, answer.headers["content-type"], body, cut)
    finally:
        client.close()


# ---------------------------------------------------------------- the plan


@pytest.mark.guarantee("G-KIT-05")
def test_an_empty_plan_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        FaultPlan(steps=())


@pytest.mark.guarantee("G-KIT-05")
@pytest.mark.parametrize(
    "step",
    [
        {"type": "pass", "text": "ok", "texts": "ok"},
        {"type": "connection-refused", "status": 500},
        {"type": "timeout-before-first-byte", "milliseconds": 0},
        {"type": "timeout-before-first-byte", "milliseconds": 1.5},
        {"type": "timeout-before-first-byte", "milliseconds": True},
        {"type": "timeout-before-first-byte"},
        {"type": "stream-cut", "after_bytes": -1},
        {"type": "stream-cut", "after_bytes": "1"},
        {"type": "stream-cut", "after_bytes": 1.0},
        {"type": "stream-cut"},
        {"type": "http-error", "status": 399},
        {"type": "http-error", "status": 600},
        {"type": "bad-json", "text": "x"},
        {"type": "http-error", "status": 500.5},
        {"type": "slow", "tokens_per_second": 0, "text": "x"},
        {"type": "slow", "tokens_per_second": -1, "text": "x"},
        {"type": "slow", "tokens_per_second": float("inf"), "text": "x"},
        {"type": "slow", "tokens_per_second": 5},
        {"type": "usage-missing", "text": None},
        {"type": "usage_missing"},
        {},
    ],
    ids=str,
)
def test_a_step_out_of_bounds_or_with_an_unknown_key_is_refused(step: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FaultPlan.model_validate({"steps": [{"type": "pass"}, step]})


WHOLE: Sequence[Step] = (
    Pass(),
    ConnectionRefused(),
    TimeoutBeforeFirstByte(milliseconds=1),
    StreamCut(after_bytes=0),
    HttpError(status=500),
    BadJson(),
    Slow(tokens_per_second=1, text=""),
    UsageMissing(),
)


@pytest.mark.guarantee("G-KIT-05")
def test_every_kind_of_step_refuses_a_key_that_it_does_not_know() -> None:
    assert {type(step) for step in WHOLE} == set(get_args(Step))
    for step in WHOLE:
        given = step.model_dump()
        assert FaultPlan.model_validate({"steps": [given]}).steps == (step,)
        with pytest.raises(ValidationError, match="Extra inputs"):
            FaultPlan.model_validate({"steps": [{**given, "afterwards": 1}]})


@pytest.mark.guarantee("G-KIT-05")
def test_a_plan_is_also_plain_data_and_its_bounds_are_taken() -> None:
    steps: Sequence[Step] = (
        Pass(),
        ConnectionRefused(),
        TimeoutBeforeFirstByte(milliseconds=1),
        StreamCut(after_bytes=0),
        HttpError(status=400),
        HttpError(status=599),
        BadJson(),
        Slow(tokens_per_second=0.5, text=""),
        UsageMissing(),
    )
    plan = FaultPlan(steps=tuple(steps))
    assert FaultPlan.model_validate_json(plan.model_dump_json()) == plan
    assert [step.text for step in steps if isinstance(step, Pass | UsageMissing)] == ["ok", "ok"]


@pytest.mark.guarantee("G-KIT-06")
def test_each_call_has_its_step_and_the_last_one_repeats() -> None:
    with serving(HttpError(status=503), Pass(text="a"), Pass(text="b")) as server:
        assert server.calls == 0
        assert ask(server).status == 503
        assert [ask(server).said for _ in range(4)] == [["a"], ["b"], ["b"], ["b"]]
        assert ask(server, path="/v1/models").status == 404
        assert server.calls == 5
    assert {one.path for one in server.requests} == {PATH, "/v1/models"}
    assert server.requests[0].json() == {"model": "m-1", "stream": True, "messages": []}


@pytest.mark.guarantee("G-KIT-06")
def test_calls_at_once_are_counted_one_by_one() -> None:
    steps = [Pass(text=str(n)) for n in range(12)]
    with serving(*steps) as server, ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda _: ask(server).said[0], steps))
        assert server.calls == len(steps)
    assert sorted(said, key=int) == [str(n) for n in range(12)]


# ---------------------------------------------------------------- the steps


@pytest.mark.guarantee("G-KIT-07")
@pytest.mark.parametrize(("step", "usage"), [(Pass(text="Grüße"), [USAGE]), (UsageMissing(), [])])
def test_pass_streams_text_stop_usage_and_the_end(step: Step, usage: list[object]) -> None:
    with serving(step) as server:
        answer = ask(server)
    assert (answer.status, answer.content_type) == (200, "text/event-stream; charset=utf-8")
    said, stop, *rest = answer.chunks
    assert said["choices"][0]["delta"]["content"] == getattr(step, "text", None)
    assert (said["choices"][0]["finish_reason"], said["model"]) == (None, "m-1")
    assert (stop["choices"][0]["delta"], stop["choices"][0]["finish_reason"]) == ({}, "stop")
    assert [(chunk["choices"], chunk["usage"]) for chunk in rest] == [([], one) for one in usage]


@pytest.mark.guarantee("G-KIT-07")
def test_a_call_that_does_not_stream_is_answered_whole() -> None:
    with serving(
        Pass(text="hi"), UsageMissing(), Slow(tokens_per_second=9999, text="a b")
    ) as server:
        answers = [ask(server, stream=False) for _ in range(3)]
    bodies = [json.loads(answer.body) for answer in answers]
    assert {answer.content_type for answer in answers} == {"application/json"}
    assert [body["choices"][0]["message"]["content"] for body in bodies] == ["hi", "ok", "a b"]
    assert {body["choices"][0]["finish_reason"] for body in bodies} == {"stop"}
    assert [body.get("usage") for body in bodies] == [USAGE, None, None]


@pytest.mark.guarantee("G-KIT-07")
@pytest.mark.parametrize("stream", [True, False])
def test_a_refused_connection_has_no_answer(stream: bool) -> None:
    with serving(ConnectionRefused()) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, stream=stream)
        assert server.calls == 1


@pytest.mark.guarantee("G-KIT-07")
def test_before_the_first_byte_there_is_silence_and_then_all_of_it() -> None:
    with serving(TimeoutBeforeFirstByte(milliseconds=40)) as server:
        began = time.monotonic()
        answer = ask(server)
        # That it waits at all, not how long: a clock is no test.
        assert time.monotonic() - began >= 0.04
        assert (answer.said, answer.chunks[-1]["usage"]) == (["ok"], USAGE)


@pytest.mark.guarantee("G-KIT-07")
def test_a_server_that_is_silent_can_be_stopped() -> None:
    with serving(TimeoutBeforeFirstByte(milliseconds=600_000)) as server:
        client = socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=0.02)
        client.sendall(f"POST {PATH} HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        with pytest.raises(TimeoutError):
            client.recv(1)
    client.settimeout(10)
    with client, suppress(ConnectionResetError):
        assert client.recv(1) == b""


@pytest.mark.guarantee("G-KIT-07")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [400, 429, 503, 599])
def test_an_http_error_is_an_error_in_json(status: int, stream: bool) -> None:
    with serving(HttpError(status=status)) as server:
        answer = ask(server, stream=stream)
    assert (answer.status, answer.content_type) == (status, "application/json")
    assert json.loads(answer.body)["error"]["code"] == str(status)


@pytest.mark.guarantee("G-KIT-07")
def test_bad_json_is_status_200_and_cannot_be_read() -> None:
    with serving(BadJson()) as server:
        streamed, whole = ask(server), ask(server, stream=False)
    assert (streamed.status, whole.status) == (200, 200)
    broken, end = streamed.lines
    assert end == "[DONE]"
    for text in (broken, whole.body):
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


@pytest.mark.guarantee("G-KIT-07")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", [0, 1, 20, 100_000])
def test_a_cut_stream_ends_after_so_many_bytes_of_one_piece(after: int, stream: bool) -> None:
    with serving(StreamCut(after_bytes=after), Pass()) as server:
        cut, whole = ask(server, stream=stream), ask(server, stream=stream)
    first = whole.body.split(b"\n\n")[0] + b"\n\n" if stream else whole.body
    assert (cut.cut, whole.cut) == (True, False)
    assert len(cut.body) == min(after, len(first) if stream else len(first) - 1)
    assert first.replace(b"-2", b"-1").startswith(cut.body)


@pytest.mark.guarantee("G-KIT-07")
def test_slow_says_word_by_word_and_tells_no_usage() -> None:
    text = " one  two\nthree "
    with serving(Slow(tokens_per_second=1e9, text=text)) as server:
        answer = ask(server)
    assert answer.said == [" one  ", "two\n", "three "]
    assert [chunk.get("usage") for chunk in answer.chunks] == [None] * 4
    assert answer.chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (
        Slow(tokens_per_second=1e9, text="").pause,
        Slow(tokens_per_second=4, text="").pause,
    ) == (
        0.001,
        0.25,
    )


# ---------------------------------------------------------------- the server


@pytest.mark.guarantee("G-KIT-06")
def test_it_serves_tasks_of_a_loop_too_and_any_number_of_servers() -> None:
    async def both() -> list[list[str]]:
        async with serving(Pass(text="a")) as one, serving(Pass(text="b")) as other:
            assert one.url != other.url
            answers = await asyncio.gather(*(asyncio.to_thread(ask, at) for at in (one, other)))
            return [answer.said for answer in answers]

    assert asyncio.run(both()) == [["a"], ["b"]]


@pytest.mark.guarantee("G-KIT-06")
def test_it_has_an_address_of_loopback_and_only_while_it_runs() -> None:
    server = serving(Pass())
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
    with server:
        port = urlsplit(server.url).port
        with pytest.raises(OSError, match=r".+"):  # another address of this machine
            socket.create_connection(("127.0.0.2", port))
        with pytest.raises(RuntimeError, match="is running"):
            server.start()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_what_is_no_call_gets_an_error_and_is_not_counted() -> None:
    with serving(Pass()) as server:
        client = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
        client.request("POST", PATH, "{", {})
        assert client.getresponse().status == 400
        client.close()
        # Nor does a client that says nothing, or half a word, stop the next one.
        for said in (b"", b"POST /v1/chat/compl", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", urlsplit(server.url).port)) as silent:
                silent.sendall(said)
        assert ask(server).said == ["ok"]
        assert server.calls == 1


def test_a_request_in_chunks_is_read() -> None:
    with serving(Pass()) as server:
        client = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
        client.request("POST", PATH, iter([b'{"stream"', b": true}"]), encode_chunked=True)
        assert client.getresponse().headers["content-type"].startswith("text/event-stream")
        client.close()
        assert server.requests[0].json() == {"stream": True}


# ---------------------------------------------------------------- a client of that API

FAULTS: Sequence[tuple[Step, str]] = (
    (HttpError(status=429), "RateLimitError"),
    (HttpError(status=503), "InternalServerError"),
    (ConnectionRefused(), "APIConnectionError"),
    (TimeoutBeforeFirstByte(milliseconds=600_000), "APITimeoutError"),
    (StreamCut(after_bytes=30), "APIConnectionError"),
    (BadJson(), "JSONDecodeError"),
)


@pytest.mark.guarantee("G-KIT-07")
def test_the_client_of_openai_meets_each_fault_as_what_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    openai = pytest.importorskip("openai")

    steps = [step for step, _ in FAULTS]
    with serving(*steps, Pass(text="Hello"), UsageMissing()) as server:
        client = openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=0.5
        )

        def told() -> tuple[str, list[int]]:
            stream = client.chat.completions.create(model="m", messages=[], stream=True)
            chunks = list(stream)
            said = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
            return "".join(said), [one.usage.total_tokens for one in chunks if one.usage]

        met = []
        for _ in FAULTS:
            with pytest.raises(Exception) as error:  # noqa: PT011 - which one is the question
                told()
            met.append(type(error.value).__name__)
        assert met == [error for _, error in FAULTS]
        assert [told(), told()] == [("Hello", [2]), ("ok", [])]
        assert server.calls == len(FAULTS) + 2
        client.close()
    assert [one for one in caplog.records if one.name == "asyncio"] == []
