"""`engine-assistant relay`: two at once, one killed, one receiver that fails; nothing is lost."""

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant
from tests.relay.test_drain import live, waiting
from tests.rig.command import COMMAND, on, told


class Receiver:
    """An HTTP server that keeps what it is sent, and refuses one thread while told to."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        self.refused: str | None = None
        self.arrived = threading.Semaphore(0)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                refused = body["thread_id"] == receiver.refused and body["n"] == 2
                if not refused:
                    receiver.seen[body["thread_id"]].append(body["n"])
                receiver.arrived.release()
                self.send_response(503 if refused else 204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on loopback."""
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.guarantee("G-RELAY-05")
def test_to_standard_output(database_url: str, engine: sa.Engine) -> None:
    thread = live(Assistant(engine))
    rows = told(database_url, "relay", "--once").rows
    assert [(row["thread_id"], row["n"]) for row in rows] == [(thread, n) for n in (1, 2, 3)]
    assert told(database_url, "relay", "--once").rows == []


@pytest.mark.guarantee("G-RELAY-02", "G-RELAY-05")
def test_a_receiver_that_refuses_stalls_one_thread(
    database_url: str, engine: sa.Engine, receiver: Receiver
) -> None:
    assistant = Assistant(engine)
    bad, good = live(assistant), live(assistant)
    receiver.refused = bad
    done = told(database_url, "relay", "--once", "--to", receiver.url)
    assert done.code == 1
    assert "milestone 2 was not taken" in done.err
    assert dict(receiver.seen) == {bad: [1], good: [1, 2, 3]}
    assert waiting(assistant) == 2


@pytest.mark.guarantee("G-RELAY-03", "G-RELAY-05")
def test_two_relays_of_which_one_is_killed_lose_nothing(
    database_url: str, engine: sa.Engine, receiver: Receiver
) -> None:
    assistant = Assistant(engine)
    threads = [live(assistant, turns=2) for _ in range(12)]
    words = [*COMMAND, "relay", "--to", receiver.url, "--every", "0.05"]
    killed, other = (
        subprocess.Popen(words, env=on(database_url), stderr=subprocess.DEVNULL) for _ in range(2)
    )
    try:
        for _ in range(7):
            assert receiver.arrived.acquire(timeout=30)
        killed.kill()
        killed.wait()
        # The claim of the killed one lasts a minute; a clock that is a minute on sees it run out.
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE assistant_outbox SET claimed_until = NULL WHERE claimed_until IS NOT NULL"
            )
        # The last arrival comes before the last milestone is forgotten, so look again and again.
        for _ in range(600):
            if not waiting(assistant):
                break
            receiver.arrived.acquire(timeout=0.1)
        assert waiting(assistant) == 0
    finally:
        for process in (killed, other):
            process.kill()
            process.wait()
    for thread in threads:
        numbers = receiver.seen[thread]
        first = [n for at, n in enumerate(numbers) if n not in numbers[:at]]
        assert first == [1, 2, 3, 4, 5]


@pytest.mark.guarantee("G-RELAY-05")
@pytest.mark.parametrize("to", ["file:///etc/passwd", "nowhere", "ftp://x/"])
def test_only_standard_output_or_http(database_url: str, to: str) -> None:
    done = told(database_url, "relay", "--once", "--to", to)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: validation_failed: --to must be stdout")
