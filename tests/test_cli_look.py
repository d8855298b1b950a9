"""The commands that look at a record and act on it, run as a stranger runs them."""

import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import RUN, USE, Assistant, Caller, Operations
from engine_assistant.cli.demo.telling import card
from engine_assistant.cli.screen import Screen
from engine_assistant.model import codec
from tests.rig.command import COMMAND, on, told
from tests.rig.terminals import CTRL_D, Terminal

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)
EVIL = "a\x1b[31mred\x07\nline"


@pytest.fixture
def assistant(engine: sa.Engine) -> Assistant:
    """The engine over a fresh database."""
    return Assistant(engine)


@pytest.fixture
def me(assistant: Assistant) -> Operations:
    """A person."""
    return assistant.acting_as(ALICE)


@pytest.fixture
def robot(assistant: Assistant) -> Operations:
    """The assistant host."""
    return assistant.acting_as(ROBOT)


@pytest.fixture
def waiting(me: Operations, robot: Operations) -> str:
    """A thread that waits for Alice's answer about one call, with hostile text in it."""
    thread = me.create_thread(title=EVIL).id
    me.send_message(thread_id=thread, text=f"hello {EVIL}")
    lease = robot.acquire_run(thread_id=thread, run_id="run_1")
    mine = {"thread_id": thread, "run_id": "run_1", "fence": lease.fence}
    robot.append_events(
        **mine,
        events=[
            {"type": "text-delta", "text": "I will "},
            {"type": "text-delta", "text": "refund it."},
            {
                "type": "tool-input",
                "call_id": "c1",
                "tool": "refund",
                "input": {"note": EVIL},
                "step": "s1",
            },
        ],
    )
    robot.request_approval(**mine, call_id="c1", operation="refund", version="v1", expires_in=600)
    robot.append_events(**mine, events=[{"type": "turn-finish", "reason": "awaiting-approval"}])
    return thread


@pytest.mark.guarantee("G-CLI-20")
def test_threads_and_runs_list_what_is_there(database_url: str, waiting: str) -> None:
    (row,) = told(database_url, "threads", "--json").rows
    assert (row["id"], row["tenant_id"], row["turn_state"]) == (waiting, "acme", "awaiting")
    assert waiting in told(database_url, "threads").out
    assert waiting in told(database_url, "runs").out
    assert told(database_url, "threads", "--tenant", "other", "--json").rows == []
    assert "waits for people until" in told(database_url, "runs").out


@pytest.mark.guarantee("G-RUN-11")
def test_the_runs_of_a_thread_are_listed_with_what_they_left(
    database_url: str, me: Operations, robot: Operations, waiting: str
) -> None:
    me.send_message(thread_id=waiting, text="never mind", supersede_approvals=True)
    held = {"thread_id": waiting, "run_id": "run_2"}
    held["fence"] = robot.acquire_run(**held).fence
    cost = {"value": "0.10", "currency": "EUR", "provenance": "computed"}
    usage = {"input": {"value": 1234, "provenance": "reported"}, "cost": cost}
    robot.append_events(**held, events=[{"type": "turn-finish", "reason": "done"}], usage=usage)
    me.send_message(thread_id=waiting, text="more")
    held = {"thread_id": waiting, "run_id": EVIL}
    held["fence"] = robot.acquire_run(**held, stale_after=3600.0).fence
    robot.record_operation(**held, operation_id="o", kind="model", phase=EVIL)
    robot.put_context(**held, state="hunter2")
    shown = told(database_url, "runs", waiting)
    assert shown.code == 0, shown.err
    live, second, first = shown.out.splitlines()
    assert "holds the lease until" in live
    assert ", model a" in live
    assert "done after" in second
    assert second.endswith(", input 1,234, 0.10 EUR")
    assert "awaiting-approval after" in first
    assert "\x1b" not in shown.out
    assert "hunter2" not in shown.out
    rows = told(database_url, "runs", waiting, "--json").rows
    assert [(row["fence"], row["run_id"], row["reason"]) for row in rows] == [
        (3, EVIL, None),
        (2, "run_2", "done"),
        (1, "run_1", "awaiting-approval"),
    ]
    assert told(database_url, "runs", waiting, "--limit", "1", "--json").rows == rows[:1]
    assert told(database_url, "runs", "nope").code == 1


@pytest.mark.guarantee("G-RUN-11")
def test_a_thread_that_nobody_ran_says_so(database_url: str, me: Operations) -> None:
    thread_id = me.create_thread().id
    shown = told(database_url, "runs", thread_id)
    assert (shown.code, shown.out + shown.err) == (0, "Nobody has run it yet.\n")
    assert told(database_url, "runs", thread_id, "--json").rows == []


@pytest.mark.guarantee("G-CLI-20")
def test_show_prints_conversation_calls_and_timeline(database_url: str, waiting: str) -> None:
    shown = told(database_url, "show", waiting)
    assert shown.code == 0, shown.err
    assert "assistant: I will refund it." in shown.out
    assert "awaiting-approval  (usr_alice pending)" in shown.out
    assert [line.split()[0] for line in shown.out.splitlines()[-7:]] == list("1234567")
    rows = told(database_url, "show", waiting, "--json").rows
    assert [next(iter(row)) for row in rows] == ["thread", "call", *["event"] * 7]


@pytest.mark.guarantee("G-QUEUE-27")
def test_show_lists_what_waits_in_its_order(
    database_url: str, me: Operations, waiting: str
) -> None:
    assert "Waiting" not in told(database_url, "show", waiting).out
    for text, given in {
        "later": {},
        f"at once {EVIL}": {"priority": "next"},
        "and that": {"coalesce": True},
    }.items():
        me.send_message(thread_id=waiting, text=text, when_busy="queue", **given)
    shown = told(database_url, "show", waiting).out
    assert "\x1b" not in shown
    lines = shown.split("Waiting\n")[1].split("\nCalls")[0].splitlines()
    assert [line.strip() for line in lines if "usr_alice" in line or "(" in line] == [
        "2  usr_alice: at once a\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}",
        "line  (queue, next)",
        "1  usr_alice: later  (queue, normal)",
        "3  usr_alice: and that  (queue, normal, joins 1)",
    ]
    rows = told(database_url, "show", waiting, "--json").rows
    assert [next(iter(row)) for row in rows][:5] == ["thread", *["input"] * 3, "call"]
    assert [row["input"]["text"] for row in rows[2:4]] == ["later", "and that"]


@pytest.mark.guarantee("G-CLI-21")
@pytest.mark.parametrize(
    "words", [["threads"], ["show", "THREAD"], ["tail", "THREAD", "--after", "0"]]
)
def test_hostile_text_cannot_steer_a_terminal(
    database_url: str, me: Operations, waiting: str, words: list[str]
) -> None:
    me.close_thread(thread_id=waiting)
    shown = told(database_url, *(word.replace("THREAD", waiting) for word in words))
    assert shown.code == 0, shown.err
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out


@pytest.mark.guarantee("G-CLI-22")
def test_approving_from_the_terminal_approves_exactly_what_was_shown(
    database_url: str, me: Operations, waiting: str
) -> None:
    (row,) = told(database_url, "approvals", "--as", "usr_alice", "--tenant", "acme", "--json").rows
    assert (row["call_id"], row["state"], row["input"]) == ("c1", "pending", {"note": EVIL})
    stranger = told(database_url, "approve", waiting, "c1", "--as", "usr_bob", "--yes")
    assert (stranger.code, stranger.out) == (1, "")
    assert stranger.err.count("\n") == 1
    unasked = told(database_url, "approve", waiting, "c1", "--as", "usr_alice")
    assert (unasked.code, unasked.out) == (2, "")
    assert "--yes" in unasked.err
    done = told(database_url, "approve", waiting, "c1", "--as", "usr_alice", "--yes")
    assert done.code == 0, done.err
    assert "the call is approved" in done.out
    call = me.get_call(thread_id=waiting, call_id="c1")
    assert (call.state, call.approvals[0].channel) == ("approved", "terminal")
    again = told(database_url, "deny", waiting, "c1", "--as", "usr_alice", "--yes", "--json")
    assert again.code == 1
    assert again.rows[-1]["ok"] is False


@pytest.mark.guarantee("G-CLI-22")
def test_at_a_terminal_the_card_is_asked_about_and_only_a_yes_is_one(
    database_url: str, me: Operations, waiting: str
) -> None:
    words = ["approve", waiting, "c1", "--as", "usr_alice", "--database", database_url]
    for typed, told_so, code, state in (
        (CTRL_D, "Nothing was recorded.", 1, "awaiting-approval"),
        (b"yes\n", "the call is approved", 0, "approved"),
    ):
        with Terminal(*words) as terminal:
            terminal.see("Approve? [y/N] ")
            terminal.type(typed)
            terminal.see(told_so)
            assert terminal.end() == code
        assert "Traceback" not in terminal.shown
        assert me.get_call(thread_id=waiting, call_id="c1").state == state


@pytest.mark.guarantee("G-CLI-21", "G-CLI-26")
@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_card_shows_all_that_would_run(
    me: Operations, waiting: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow it is, and in the column of values: a line may not look like another field."""
    names = [f"customer-{n:04}" for n in range(40)]
    asked = {"names": names, f"order {EVIL}": "x", "asks": "nobody " * 9}
    (view,) = me.list_approvals(thread_id=waiting).items
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Screen(json=False)
    with screen.out.capture() as shown:
        card(screen, view.model_copy(update={"input": asked}))
    lines = shown.get().splitlines()
    assert {len(line) for line in lines} == {width}
    assert not {"\x1b", "\x07"} & set(shown.get())
    (row,) = (line for line in lines if line.startswith("| asks") and "nobody" in line)
    start = row.index("nobody")
    values = "".join(line[start:-2].rstrip() for line in lines[1:-1])
    assert values.startswith(codec.dumps(names))
    assert values.count("nobody") == 9


@pytest.mark.guarantee("G-CLI-22")
def test_denying_from_the_terminal_records_the_reason(
    database_url: str, me: Operations, waiting: str
) -> None:
    done = told(
        database_url,
        "deny",
        waiting,
        "c1",
        "--as",
        "usr_alice",
        "--reason",
        "no",
        "--json",
        "--yes",
    )
    assert done.code == 0, done.err
    assert done.rows == [{"ok": True, "seq": 8, "state": "denied", "missing": 0}]
    assert me.get_call(thread_id=waiting, call_id="c1").approvals[0].reason == "no"


@pytest.mark.guarantee("G-CLI-23")
def test_tail_follows_a_thread_until_it_is_closed(
    database_url: str, me: Operations, waiting: str
) -> None:
    words = [*COMMAND, "tail", waiting, "--after", "6", "--every", "0.05", "--json"]
    with subprocess.Popen(words, env=on(database_url), stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert '"turn-finish"' in tail.stdout.readline()
        me.send_message(thread_id=waiting, text="never mind", supersede_approvals=True)
        assert '"call-closed"' in tail.stdout.readline()
        assert '"user-message"' in tail.stdout.readline()
        me.close_thread(thread_id=waiting)
        rest = tail.stdout.read().splitlines()
        assert ['"turn-start"' in rest[0], '"turn-finish"' in rest[1], len(rest)] == [True, True, 2]
        assert tail.wait(timeout=30) == 0


@pytest.mark.guarantee("G-CLI-24")
@pytest.mark.parametrize(
    "words", [["threads"], ["show", "nope"], ["tail", "nope"], ["runs"], ["relay", "--once"]]
)
def test_looking_creates_nothing_and_says_what_to_do(tmp_path: Path, words: list[str]) -> None:
    missing = tmp_path / "missing.db"
    shown = told(f"sqlite:///{missing}", *words)
    assert shown.code == 3
    assert f"db upgrade --database sqlite:///{missing}" in shown.err
    assert shown.err.count("\n") == 1
    assert not missing.exists()


@pytest.mark.guarantee("G-CLI-24")
def test_an_unknown_thread_is_one_clear_line(database_url: str) -> None:
    shown = told(database_url, "show", "nope")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == "error: not_found: There is no such thread in this database.\n"


@pytest.mark.guarantee("G-CLI-24")
def test_a_reader_that_goes_away_is_no_traceback(
    database_url: str, me: Operations, waiting: str
) -> None:
    with subprocess.Popen(
        [*COMMAND, "tail", waiting, "--after", "0", "--every", "0.05", "--json"],
        env=on(database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        me.close_thread(thread_id=waiting)
        assert tail.stderr.read() == ""
        assert tail.wait(timeout=30) in (0, 1)


@pytest.mark.guarantee("G-CLI-25")
def test_the_sql_of_the_upgrade_can_be_read_and_run(empty_postgres_url: str) -> None:
    script = told(empty_postgres_url, "db", "sql").out
    engine = sa.create_engine(empty_postgres_url)
    with engine.begin() as connection:
        for statement in script.split(";\n"):
            if statement.strip() not in ("", "BEGIN", "COMMIT"):
                connection.exec_driver_sql(statement)
    engine.dispose()
    assert told(empty_postgres_url, "db", "check").code == 0
    assert (
        'GRANT SELECT, INSERT ON :"schema".assistant_events'
        in told(empty_postgres_url, "db", "sql", "--grants").out
    )
