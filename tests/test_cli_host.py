"""`engine-assistant host`: real processes that serve, are killed, and are told to stop."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import sqlalchemy as sa
import typer

from engine_assistant import (
    AUDIT,
    USE,
    Assistant,
    AssistantError,
    Caller,
    Operations,
    make_engine,
)
from engine_assistant.cli.options import Endpoint
from engine_assistant.cli.options import endpoint as read_endpoint
from engine_assistant.cli.screen import Screen
from engine_assistant.cli.serve import Order, serve
from engine_assistant.testing.faults import FaultPlan, FaultServer, HttpError, Pass, Slow, Step
from engine_assistant.testing.polling import poll_until
from tests.rig.command import COMMAND, as_from_a_shell, environment

PATIENCE = 60.0
SLOW = Slow(tokens_per_second=2, text="one two three four " * 50)

needs_clients = pytest.mark.skipif(
    find_spec("pydantic_ai") is None, reason="the clients of models are not installed"
)


class World:
    """A record, and people who ask in it."""

    def __init__(self, url: str, engine: sa.Engine) -> None:
        self.url = url
        self.assistant = Assistant(engine)

    def person(self, tenant: str) -> Operations:
        return self.assistant.acting_as(
            Caller(tenant=tenant, principal="usr_alice", permissions={USE, AUDIT})
        )

    def ask(self, tenant: str = "acme") -> str:
        me = self.person(tenant)
        thread = me.create_thread().id
        me.send_message(thread_id=thread, text="Please refund order 7")
        return thread

    def types(self, thread: str, tenant: str = "acme") -> list[str]:
        page = self.person(tenant).read_events(thread_id=thread)
        return [event.type for event in page.events]

    def until(self, true: Callable[[], bool]) -> None:
        poll_until(true, lambda: str(self.assistant.survey(limit=10)), PATIENCE, pause=0.05)

    def rests(self, thread: str, tenant: str = "acme") -> bool:
        return self.person(tenant).get_thread(thread_id=thread).turn_state == "idle"

    def healthy(self) -> None:
        assert list(self.assistant.doctor()) == []


@pytest.fixture
def world(database_url: str, engine: sa.Engine) -> World:
    """A migrated database."""
    return World(database_url, engine)


@contextmanager
def hosting(
    url: str,
    *words: str,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """Give a host that serves, and its first word; kill it if it still runs afterwards."""
    with subprocess.Popen(
        [*command, "host", "--database", url, "--json", "--every", "0.1", *words],
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_from_a_shell,  # noqa: PLW1509 - only this thread is there
    ) as process:
        try:
            first = process.stdout.readline()
            assert first, process.stderr.read()
            yield process, json.loads(first)
        finally:
            if process.poll() is None:
                process.kill()


def stopped(process: subprocess.Popen[str], by: signal.Signals) -> list[dict[str, object]]:
    """Tell a host to stop; return what it said until it had."""
    process.send_signal(by)
    return ended(process)


def ended(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    """Return what a host said until its end."""
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def is_well(began: Mapping[str, object]) -> bool:
    """Ask a host for its health; one that drains says so, and one that has ended nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{began['health_port']}/health") as health:
            return json.load(health)["draining"] is False
    except OSError:
        return False


def endpoint(server: FaultServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test"}


def plan(*steps: Step) -> FaultServer:
    return FaultServer(FaultPlan(steps=steps))


@pytest.mark.guarantee("G-SERVE-09", "G-SERVE-10")
def test_it_serves_every_tenant_asks_for_approval_and_runs_what_was_approved(world: World) -> None:
    tenants = ("acme", "bakery")
    threads = {tenant: world.ask(tenant) for tenant in tenants}
    with hosting(world.url, "--model", "demo", "--health", "0") as (process, began):
        for tenant in tenants:
            inbox = world.person(tenant)
            # Decided any sooner, the run that asked would go on by itself.
            waits = partial(inbox.get_thread, thread_id=threads[tenant])
            world.until(lambda waits=waits: waits().turn_state == "awaiting")
            (card,) = inbox.list_approvals().items
            answer = {"approved": tenant == "acme", "digest": card.digest, "version": card.version}
            inbox.resolve_approval(thread_id=card.thread_id, call_id=card.call_id, **answer)
        for tenant, thread in threads.items():
            world.until(lambda thread=thread, tenant=tenant: world.rests(thread, tenant))
        assert is_well(began)
        said = stopped(process, signal.SIGTERM)
    assert said[-1] == {"ok": True, "picked_up": 4, "failed": 0}
    assert sorted((row["tenant"], row["ended"]) for row in said[:-1]) == [
        ("acme", "awaiting-approval"),
        ("acme", "done"),
        ("bakery", "awaiting-approval"),
        ("bakery", "done"),
    ]
    assert world.types(threads["acme"]).count("execution-claimed") == 1
    assert "execution-claimed" not in world.types(threads["bakery"], "bakery")
    world.healthy()


@pytest.fixture
def small_world(sqlite_url: str) -> Iterator[World]:
    """A migrated SQLite file."""
    engine = make_engine(sqlite_url)
    yield World(sqlite_url, engine)
    engine.dispose()


@pytest.mark.guarantee("G-SERVE-10")
@needs_clients
def test_the_turn_of_one_that_was_killed_is_finished_by_another(world: World) -> None:
    thread = world.ask()
    with plan(SLOW, Pass(text="Here I am.")) as server:
        given, env = ["--model", "openai-chat:gpt-5", "--stale-after", "2"], endpoint(server)
        with hosting(world.url, *given, env=env) as (first, _):
            world.until(lambda: "text-delta" in world.types(thread))
            first.kill()
            first.wait()
        with hosting(world.url, *given, env=env) as (second, _):
            world.until(lambda: world.rests(thread))
            said, _ = stopped(second, signal.SIGINT)
    assert (said["thread_id"], said["fence"], said["ended"]) == (thread, 2, "done")
    assert world.types(thread)[-1] == "turn-finish"
    world.healthy()


TRACED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from engine_assistant.cli import main

told = open(sys.argv.pop(1), "w")
spans = ConsoleSpanExporter(out=told, formatter=lambda span: span.name + "\\n")
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(tracers)
main()
"""


@pytest.mark.guarantee("G-OTEL-11")
@pytest.mark.skipif(find_spec("opentelemetry") is None, reason="there is nothing to tell")
def test_it_tells_the_tracers_of_its_process(small_world: World, tmp_path: Path) -> None:
    world = small_world
    thread = world.ask()
    told = tmp_path / "spans"
    command = [sys.executable, "-c", TRACED, str(told)]
    with hosting(world.url, "--model", "demo", command=command) as (process, _):
        waits = partial(world.person("acme").get_thread, thread_id=thread)
        world.until(lambda: waits().turn_state == "awaiting")
        stopped(process, signal.SIGTERM)
    names = told.read_text().split()
    assert {"invoke_agent", "engine_assistant.request_approval"} <= set(names)


@pytest.mark.guarantee("G-SERVE-10")
def test_told_to_stop_it_lets_a_turn_rest_and_begins_none(small_world: World) -> None:
    world = small_world
    thread = world.ask()
    with hosting(world.url, "--model", "demo", "--health", "0") as (process, began):
        world.until(lambda: "text-delta" in world.types(thread))
        process.send_signal(signal.SIGTERM)
        world.until(lambda: not is_well(began))
        later = world.ask()
        said = ended(process)
    assert [row.get("ended") for row in said] == ["awaiting-approval", None]
    assert [one.thread_id for one in world.assistant.list_runnable()] == [later]
    world.healthy()


@pytest.mark.guarantee("G-SERVE-10")
@needs_clients
def test_a_turn_that_does_not_rest_in_time_is_left_to_others(small_world: World) -> None:
    world = small_world
    thread = world.ask()
    words = ["--model", "openai-chat:gpt-5", "--grace", "0"]
    with plan(SLOW) as server, hosting(world.url, *words, env=endpoint(server)) as (process, _):
        world.until(lambda: "text-delta" in world.types(thread))
        assert stopped(process, signal.SIGTERM) == [{"ok": True, "picked_up": 1, "failed": 0}]
    (left,) = world.assistant.list_runnable()
    assert (left.thread_id, left.why) == (thread, "no-run")
    world.healthy()


@pytest.mark.guarantee("G-SERVE-10")
@needs_clients
def test_it_says_why_a_turn_failed(small_world: World) -> None:
    world = small_world
    thread = world.ask()
    words = ["--model", "openai-chat:gpt-5"]
    with (
        plan(HttpError(status=401)) as server,
        hosting(world.url, *words, env=endpoint(server)) as (process, _),
    ):
        world.until(lambda: world.rests(thread))
        told, _ = stopped(process, signal.SIGTERM)
    assert (told["ended"], told["error"]) == ("error", "model_failed")
    assert str(told["message"]).startswith("The model's provider answered with status 401")


@pytest.mark.guarantee("G-SERVE-11")
def test_what_it_lacks_to_start_is_said_in_a_line(sqlite_url: str, tmp_path: Path) -> None:
    def refusal(url: str, health: Endpoint | None = None) -> AssistantError:
        order = Order(
            model="demo",
            tools=None,
            system=None,
            concurrency=1,
            every=1.0,
            stale_after=15.0,
            grace=0.0,
            health=health,
        )
        with pytest.raises(AssistantError) as raised:
            serve(Screen(json=False), url, order)
        return raised.value

    absent = refusal(f"sqlite:///{tmp_path}/absent.db")
    assert "There is no database at" in absent.message
    assert absent.facts["missing"] is True
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "empty.db").touch()
    assert "engine-assistant db upgrade" in refusal(f"sqlite:///{tmp_path}/empty.db").message
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        at = Endpoint("127.0.0.1", port)
        assert refusal(sqlite_url, health=at).message == f"Nobody can listen on 127.0.0.1:{port}."


@pytest.mark.guarantee("G-SERVE-11")
def test_where_it_tells_its_health_is_a_port_or_an_address_and_a_port() -> None:
    assert read_endpoint("8080") == ("127.0.0.1", 8080)
    assert read_endpoint("0.0.0.0:0") == ("0.0.0.0", 0)  # noqa: S104 - read, and not listened on
    assert str(read_endpoint("[::1]:8080")) == "[::1]:8080"
    for wrong in ("", "port", "-1", "65536", "1.2.3.4", "1.2.3.4:", "\uff18"):
        with pytest.raises(typer.BadParameter):
            read_endpoint(wrong)
