"""`engine-assistant chat`: piped, at a terminal, stopped, and gone on with."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine_assistant import Assistant, AssistantError, ValidationFailed
from engine_assistant.cli.answering import answering
from engine_assistant.model.service import Surveyed
from engine_assistant.testing.faults import FaultPlan, FaultServer, HttpError, Pass, Slow, Step
from engine_assistant.testing.recorded import RecordedServer
from tests.host.wires import WIRES
from tests.rig.command import COMMAND, environment
from tests.rig.terminals import CTRL_C, CTRL_D, Terminal

ASKED = [
    "user-message",
    "turn-start",
    "step-start",
    *["text-delta", "tool-input", "step-finish", "tool-output", "step-start"],
    *["text-delta", "tool-input", "step-finish", "approval-request", "turn-finish"],
]
APPROVED = ["approval-resolved", "execution-claimed", "tool-output"]
TOLD = ["step-start", "text-delta", "step-finish", "turn-finish"]

SHOP = """
from engine_assistant.host import ToolRegistry, tool

@tool(effect="read", approval="never")
def find_order(order: int) -> str:
    \"\"\"Find an order.\"\"\"
    return "paid"

registry = ToolRegistry([find_order])
"""

needs_clients = pytest.mark.skipif(
    find_spec("pydantic_ai") is None, reason="the clients of models are not installed"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/chat.db"


def chat(
    url: str,
    *words: str,
    lines: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Chat through pipes, to the end."""
    return subprocess.run(
        [*COMMAND, "chat", "--database", url, *words],
        cwd=cwd,
        env=environment(**(env or {})),
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def endpoint(server: FaultServer) -> dict[str, str]:
    """Return the environment in which OpenAI is that server."""
    return {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test-4711"}


def plan(*steps: Step) -> FaultServer:
    return FaultServer(FaultPlan(steps=steps))


def kept(url: str) -> tuple[Surveyed, list[str]]:
    """Return the only thread, whose record is sound, and the types of its events."""
    assistant = Assistant.from_url(url)
    try:
        assert list(assistant.doctor()) == []
        (thread,) = assistant.survey()
        with assistant.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT type FROM assistant_events ORDER BY seq")
            return thread, [row[0] for row in rows]
    finally:
        assistant.engine.dispose()


def joined(types: list[str]) -> list[str]:
    """Return them with neighbouring deltas as one: how many there are is a matter of time."""
    return [one for at, one in enumerate(types) if one != "text-delta" or types[at - 1] != one]


# ------------------------------------------------------------ piped


@pytest.mark.guarantee("G-CHAT-01", "G-CHAT-03")
def test_piped_nobody_is_asked_and_the_waiting_call_is_taken_up_again(url: str) -> None:
    first = chat(url, "--model", "demo", lines="Please refund order 7\nand more\n")
    assert first.returncode == 1
    assert "Approval needed: refund" in first.stdout
    assert "waits for approval" in first.stderr
    assert "were not sent" in first.stderr
    assert first.stderr.count("\n") == 1
    thread, types = kept(url)
    assert (thread.turn_state, joined(types)) == ("awaiting", ASKED)

    second = chat(url, "--model", "demo", "--yes", "--json")
    assert (second.returncode, second.stderr) == (0, "")
    rows = [json.loads(line) for line in second.stdout.splitlines()]
    assert [next(iter(row)) for row in rows] == ["thread", *["event"] * (len(rows) - 2), "ok"]
    assert rows[-1] == {"ok": True, "thread_id": thread.id}
    thread, types = kept(url)
    assert (thread.turn_state, joined(types)) == ("idle", [*ASKED, *APPROVED, *TOLD])
    assert chat(url, "--model", "demo", "--thread", thread.id).stdout.count("by usr_chat") == 1
    # What was said before is shown again.
    assert [row["event"]["type"] for row in rows[1:-1]] == types


@pytest.mark.guarantee("G-CHAT-02", "G-CHAT-04")
@needs_clients
def test_lines_are_messages_of_one_thread_and_a_failure_is_told(url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = ["--model", "openai-chat:gpt-5", "--tools", "shop:registry", "--system", "Be kind."]
    with plan(Pass(text="It is \x1b[31mpaid."), HttpError(status=401)) as server:
        done = chat(url, *words, lines="one\n\ntwo", cwd=tmp_path, env=endpoint(server))
        asked = [request.json() for request in server.requests]
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: model_failed: The model's provider answered with status 401")
    assert (
        "you: one\nassistant: It is \N{REPLACEMENT CHARACTER}[31mpaid.\nyou: two\n" in done.stdout
    )
    assert "4711" not in done.stdout
    assert [one["messages"][0]["content"] for one in asked] == ["Be kind."] * 2
    assert [one["messages"][-1]["content"] for one in asked] == ["one", "two"]
    assert asked[0]["tools"][0]["function"]["name"] == "find_order"
    assert kept(url)[0].turn == 2


TILL = """
from engine_assistant.host import ToolRegistry, tool

def pays(said) -> str:
    return f"pays {said['order']}"

@tool(effect="write", approval="always", sensitive={"order"}, preview=pays)
def refund(order: int) -> str:
    return "paid"

registry = ToolRegistry([refund])
"""


@pytest.mark.guarantee("G-HOST-25")
@needs_clients
def test_sensitive_arguments_are_shown_nowhere(url: str, tmp_path: Path) -> None:
    (tmp_path / "till.py").write_text(TILL)
    wire = WIRES["openai chat"]
    words = ["--model", "openai-chat:gpt-5", "--tools", "till:registry", "--yes"]
    with RecordedServer([wire.exchange(wire.calls), wire.exchange(wire.says("Done."))]) as server:
        env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-test-4711"}
        done = chat(url, *words, lines="Refund them", cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('refund {"order":"***"}') == 3
    assert done.stdout.count("order     ***") == 3
    assert done.stdout.count("It pays ***.") == 3
    assert done.stdout.count('gave "paid"') == 3


@pytest.mark.guarantee("G-CHAT-05")
def test_what_cannot_answer_is_one_line_and_makes_nothing(url: str, tmp_path: Path) -> None:
    done = chat(url, "--model", "x:y", "--tools", "nowhere.at.all:x")
    line = "error: validation_failed: There is no module nowhere.at.all.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert not (tmp_path / "chat.db").exists()


@pytest.mark.guarantee("G-CHAT-05")
def test_without_the_clients_it_says_what_to_install(url: str) -> None:
    program = (
        "import sys; sys.modules['pydantic_ai'] = None; from engine_assistant.cli import main\n"
        f"sys.argv[1:] = ['chat', '--model', 'openai:gpt-5', '--database', '{url}']; main()"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "pip install 'engine-assistant[host]'" in done.stderr


@pytest.mark.guarantee("G-CHAT-05", "G-SERVE-11")
@needs_clients
@pytest.mark.parametrize("command", ["chat", "host"])
def test_a_key_that_is_missing_is_one_line_that_names_it(
    url: str, tmp_path: Path, command: str
) -> None:
    without = {name: value for name, value in environment().items() if "API_KEY" not in name}
    done = subprocess.run(
        [*COMMAND, command, "--model", "anthropic:claude-sonnet-5", "--database", url],
        env=without,
        input="Hello\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "needs the environment variable ANTHROPIC_API_KEY" in line
    assert not (tmp_path / "chat.db").exists()


@pytest.mark.guarantee("G-CHAT-05")
@needs_clients
@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-responses:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-3-pro", "GOOGLE_API_KEY"),
        ("groq:gpt-oss", "GROQ_API_KEY"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
        ("azure:gpt-5", "AZURE_OPENAI_ENDPOINT"),
    ],
)
def test_each_provider_names_the_variable_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    for name in (variable, "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AssistantError) as raised:
        answering(model, None)
    needs = f"The model {model} needs the environment variable {variable}."
    assert raised.value.message == needs


@pytest.mark.guarantee("G-CHAT-05")
@needs_clients
@pytest.mark.parametrize(
    ("key", "model", "line"),
    [
        ("", "openai:gpt-5", "Is its key in the environment?"),
        ("sk-4711", "nobody:x", "There is no model nobody:x."),
        ("sk-4711", "openai", "There is no model openai."),
    ],
)
def test_a_model_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, key: str, model: str, line: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(AssistantError) as raised:
        answering(model, None)
    assert line in raised.value.message
    assert "4711" not in str(raised.value)


@pytest.mark.guarantee("G-CHAT-05")
@pytest.mark.parametrize(
    ("tools", "line"),
    [
        ("nowhere", "Tools are named as module:registry"),
        ("chat_shop:other", "There is no ToolRegistry at chat_shop:other."),
        ("chat_broken:x", "The module chat_broken cannot be imported: KeyError: 'KEY'"),
        ("chat_lost:x", "The module chat_lost cannot be imported: ModuleNotFoundError"),
    ],
)
def test_tools_that_are_not_there_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tools: str, line: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat_shop.py").write_text(SHOP)
    (tmp_path / "chat_broken.py").write_text("import os\nos.environ['KEY']\n")
    (tmp_path / "chat_lost.py").write_text("import chat_nowhere\n")
    with pytest.raises(ValidationFailed, match=re.escape(line)):
        answering("x:y", tools)


# ------------------------------------------------------------ at a terminal


@pytest.mark.guarantee("G-CHAT-03")
def test_ctrl_c_at_a_card_leaves_it_waiting_and_it_is_shown_again(url: str) -> None:
    words = ["chat", "--model", "demo", "--database", url]
    with Terminal(*words) as first:
        first.see("you: ")
        first.type(b"Please refund order 7\n")
        first.see("[y/N]")
        first.type(CTRL_C)
        assert first.end() == 130
        assert "\nA turn is not over: the same command goes on with it.\n" in first.shown
        assert first.shown.endswith("\nerror: Stopped.\n")
        assert "Traceback" not in first.shown
    thread, _ = kept(url)
    assert thread.turn_state == "awaiting"
    assert f"as thread {thread.id}." in first.shown
    with Terminal(*words) as second:
        second.see("Approval needed: refund")
        second.see("[y/N]")
        second.type(b"y\n")
        second.see("approved by usr_chat")
        second.see("It is done")
        second.see("you: ")
        second.type(b"/help\n")
        second.see("no such command: /help; there are /stop and /quit")
        second.see("you: ")
        second.type(b"/quit\n")
        assert second.end() == 0
        assert "the same command with --thread and this id." in second.shown
    assert joined(kept(url)[1]) == [*ASKED, *APPROVED, *TOLD]


@pytest.mark.guarantee("G-CHAT-01")
@pytest.mark.parametrize("typed", [b"no\n", b"\n", b"/stop\n"])
def test_only_a_yes_is_a_yes_and_what_is_neither_is_asked_again(url: str, typed: bytes) -> None:
    with Terminal("chat", "--model", "demo", "--database", url) as terminal:
        terminal.see("you: ")
        terminal.type(b"Hello\n")
        terminal.see("[y/N]")
        terminal.type(b"yes please\n/help\n")
        for _ in range(2):
            terminal.see("Say y or n first")
            terminal.see("[y/N]")
        terminal.type(typed)
        terminal.see("you: ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    thread, types = kept(url)
    assert "execution-claimed" not in types
    assert thread.turn_state == "idle"


SLOW = Slow(tokens_per_second=2, text="one two three four " * 50)


@pytest.mark.guarantee("G-CHAT-02", "G-CHAT-03")
@needs_clients
def test_ctrl_c_while_it_speaks_gives_the_turn_to_whoever_comes_next(url: str) -> None:
    words = ["chat", "--model", "openai-chat:gpt-5", "--database", url]
    with plan(SLOW, Pass(text="Here I am.")) as server:
        with Terminal(*words, env=endpoint(server)) as first:
            first.see("you: ")
            first.type(b"Count\n")
            first.see("assistant: one")
            first.type(CTRL_C)
            assert first.end() == 130
        thread, _ = kept(url)
        assert (thread.turn_state, thread.run_id) == ("open", None)
        with Terminal(*words, env=endpoint(server)) as second:
            second.see("you: Count")
            second.see("\nassistant: Here I am.")
            second.see("you: ")
            second.type(CTRL_D)
            assert second.end() == 0
        assert server.calls == 2
    thread, types = kept(url)
    assert (thread.turn, thread.turn_state, types[-1]) == (1, "idle", "turn-finish")


@pytest.mark.guarantee("G-CHAT-06")
@needs_clients
def test_what_is_typed_while_it_speaks_joins_and_stop_stops(url: str) -> None:
    words = ["chat", "--model", "openai-chat:gpt-5", "--database", url]
    with plan(SLOW, Pass(text="Stopped, I see.")) as server:
        with Terminal(*words, env=endpoint(server)) as terminal:
            terminal.see("you: ")
            terminal.type(b"Count\n")
            terminal.see("assistant: one")
            terminal.type(b"No, wait\n/stop\n")
            terminal.see("(the turn ended: interrupted)")
            # The message that the turn did not take opens the next one.
            terminal.see("Stopped, I see.")
            terminal.see("you: ")
            terminal.type(b"/quit\n")
            assert terminal.end() == 0
        said = [one["content"] for one in server.requests[-1].json()["messages"]]
    assert said[-1] == "No, wait"
    assert kept(url)[0].turn == 2
    assert re.search(r"as thread \w+\.", terminal.shown)
