"""`engine-assistant replay`: what was said and done in a conversation is what is in the record."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.rig import replays
from tests.rig.command import run
from tests.rig.replays import AIRLINE, WRITES, asks, call, eventful, result, says, write_lines


@pytest.mark.guarantee("G-CLI-01", "G-CLI-02", "G-CLI-03")
def test_a_hundred_real_conversations_are_recorded_whole(
    database_url: str, engine: sa.Engine
) -> None:
    if not AIRLINE.exists():
        pytest.skip("the shared conversations are not here")
    done = run("replay", AIRLINE, "--gate", ",".join(WRITES), "--database", database_url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    conversations = {one["id"]: one["messages"] for one in replays.lines_of(AIRLINE)}
    record = replays.recorded(engine)
    assert record.keys() == conversations.keys()
    messages = calls = gated = repeated = 0
    for name, thread in record.items():
        assert replays.read_back(thread) == replays.expected(conversations[name])
        assert thread.numbers == list(range(1, len(thread.numbers) + 1))
        dangerous = {id for id, (tool, _, _) in thread.calls.items() if tool in WRITES}
        assert thread.asked == dict.fromkeys(dangerous, 1)
        assert thread.claimed == dict.fromkeys(dangerous, 1)
        messages += len(conversations[name])
        calls += len(thread.calls)
        gated += len(dangerous)
        repeated += len(thread.calls) - len({id for _, _, id in thread.calls.values()})
    assert (messages, calls, gated, repeated) == (2548, 584, 126, 37)
    assert (told["messages"], told["calls"], told["gated"]) == (messages, calls, gated)
    assert (told["conversations"], told["already"], told["failed"]) == (100, 0, 0)
    assert replays.states(engine) == {
        "turns": {"idle": 100},
        "calls": {"done": 584},
        "runs": {"finished": 690 + 126},
        "approvals": {"approved": 126},
    }


@pytest.mark.guarantee("G-CLI-01", "G-CLI-02", "G-CLI-03")
def test_several_calls_at_once_repeated_ids_and_unanswered_messages(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "own.jsonl", eventful())
    done = run("replay", file, "--gate", "refund", "--database", database_url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Recorded 1 conversations: 17 messages, 7 calls, 4 of them gated")
    thread = replays.recorded(engine)["eventful"]
    assert replays.read_back(thread) == replays.expected(eventful()["messages"])
    assert thread.claimed == {"c6-1": 1, "c6-3": 1, "c10-1": 1, "c15-1": 1}
    assert replays.states(engine)["turns"] == {"idle": 1}


@pytest.mark.guarantee("G-CLI-04")
def test_a_broken_line_is_reported_where_it_stands_and_the_rest_goes_on(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    file = tmp_path / "mixed.jsonl"
    write_lines(
        file,
        eventful("first"),
        {"id": "orphan", "messages": [says("user", "Hi"), result("secret-9")]},
        {"id": "no-one", "messages": [says("assistant", "secret-9")]},
    )
    with file.open("a", encoding="utf-8") as more:
        more.write('{"id": "torn", "messages": [{"role": "user"\n\n')
        more.write(json.dumps(eventful("last")) + "\n")
    done = run("replay", file, "--gate", "refund", "--database", database_url, "--json")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{file}:2: messages[1].tool_call_id: answers no open call of the assistant before it",
        f"{file}:3: messages: there is no user message, and only that opens a turn",
        f"{file}:4: not JSON text at line 1, column 44",
    ]
    told = json.loads(done.stdout)
    assert (told["ok"], told["conversations"], told["failed"]) == (False, 2, 3)
    assert replays.recorded(engine).keys() == {"first", "last"}
    with engine.connect() as connection:
        threads = connection.scalar(sa.text("SELECT count(*) FROM assistant_threads"))
    assert threads == 2, "a broken line made a thread"


@pytest.mark.guarantee("G-CLI-05")
def test_run_again_it_writes_nothing(database_url: str, engine: sa.Engine, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", eventful("a"), eventful("b"))
    words = ("replay", file, "--gate", "refund", "--database", database_url, "--json")
    assert run(*words).returncode == 0
    before = replays.log(engine)
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["already"] == 2
    assert run(*words[:-1]).stdout.startswith("Nothing new: all 2 conversations ")
    assert replays.log(engine) == before


@pytest.mark.guarantee("G-CLI-05")
def test_a_conversation_that_has_grown_is_continued(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    whole = eventful()
    words = ("--gate", "refund", "--database", database_url)
    short = {"id": whole["id"], "messages": whole["messages"][:13]}
    assert run("replay", write_lines(tmp_path / "short.jsonl", short), *words).returncode == 0
    before = replays.log(engine)
    assert run("replay", write_lines(tmp_path / "whole.jsonl", whole), *words).returncode == 0
    assert replays.log(engine)[: len(before)] == before
    assert replays.read_back(replays.recorded(engine)["eventful"]) == replays.expected(
        whole["messages"]
    )


@pytest.mark.guarantee("G-CLI-06")
def test_another_conversation_under_a_used_id_is_refused_and_changes_nothing(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    whole = eventful()
    words = ("--gate", "refund", "--database", database_url)
    file = write_lines(tmp_path / "own.jsonl", whole)
    assert run("replay", file, *words).returncode == 0
    before = replays.log(engine)
    others = []
    for at, message in (
        (1, says("user", "Something else.")),
        (2, says("assistant", "I sleep.")),
        (10, asks(call("refund", 99))),
    ):
        other = [*whole["messages"]]
        other[at] = message
        others.append({"id": whole["id"], "messages": other})
    others.append({"id": whole["id"], "messages": whole["messages"][:2]})
    done = run("replay", write_lines(tmp_path / "others.jsonl", *others), *words)
    assert done.returncode == 1
    reasons = [line.partition(": ")[2] for line in done.stderr.splitlines()]
    assert len(reasons) == 4
    assert all(r.startswith("the record holds something else under this id") for r in reasons)
    assert replays.log(engine) == before


@pytest.mark.guarantee("G-CLI-01")
def test_a_json_file_holds_one_conversation_a_list_or_bare_messages(
    sqlite_url: str, tmp_path: Path
) -> None:
    from engine_assistant import make_engine

    messages = [says("user", "Hi"), says("assistant", "Hello")]
    (tmp_path / "bare.json").write_text(json.dumps(messages, indent=2))
    (tmp_path / "one.json").write_text(json.dumps({"id": "single", "messages": messages}, indent=2))
    several = [{"id": "x", "messages": messages}, {"id": "y", "messages": []}, 3]
    (tmp_path / "several.json").write_text(json.dumps(several, indent=2))
    files = [tmp_path / name for name in ("bare.json", "one.json", "several.json")]
    done = run("replay", *files, "--database", sqlite_url)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{files[2]}:2: messages: must be a list that is not empty",
        f"{files[2]}:3: not an object with an id and messages",
    ]
    engine = make_engine(sqlite_url)
    assert replays.recorded(engine).keys() == {"bare", "single", "x"}
    engine.dispose()


@pytest.mark.guarantee("G-CLI-01")
def test_what_the_record_has_no_place_for_is_kept_as_data(sqlite_url: str, tmp_path: Path) -> None:
    from engine_assistant import USE, Assistant, Caller

    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    messages = [
        says("developer", "Be kind."),
        says("assistant", "How can I help?"),
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "This?"}, picture]},
        says("assistant", "x" * 2500),
        says("system", "Hurry."),
        {"role": "assistant", "content": None, "refusal": "No."},
        asks(call("look", 1), call("look", 2, "b"), content="One moment."),
        result("found", "b"),
    ]
    file = write_lines(tmp_path / "own.jsonl", {"id": "odd", "messages": messages})
    done = run("replay", file, "--gate", "look", "--database", sqlite_url)
    assert done.returncode == 0, done.stderr
    assistant = Assistant.from_url(sqlite_url)
    person = assistant.acting_as(Caller("replay", "usr_replay", {USE}))
    thread = person.list_threads().items[0]
    events = person.read_events(thread_id=thread.id).events
    data = [(event.kind, event.payload) for event in events if event.type == "data"]
    assert data == [
        ("developer", messages[0]),
        ("assistant", messages[1]),
        (
            "message-fields",
            {"role": "user", "fields": {"name": "ann", "content": messages[2]["content"]}},
        ),
        ("system", messages[4]),
        ("message-fields", {"role": "assistant", "fields": {"refusal": "No."}}),
    ]
    texts = [event.text for event in events if event.type == "text-delta"]
    assert [len(text) for text in texts] == [1000, 1000, 500, 11]
    views = person.list_calls(thread_id=thread.id).items
    # A call that nobody answered did not run: it is closed with its turn, and asks nobody.
    assert [(view.call_id, view.state.value) for view in views] == [
        ("c6-1", "unknown"),
        ("c6-2", "done"),
    ]
    assistant.engine.dispose()


BAD = [
    (3, "not an object with an id and messages"),
    ({"messages": [says("user", "x")]}, "id: "),
    ({"id": "", "messages": [says("user", "x")]}, "id: "),
    ({"id": "x" * 129, "messages": [says("user", "x")]}, "id: "),
    ({"id": 7, "messages": [says("user", "x")]}, "id: "),
    ({"id": "a\0b", "messages": [says("user", "x")]}, "id: "),
    ([], "messages: must be a list"),
    (["hi"], "messages[0]: must be an object"),
    ([{"role": "function", "content": "x"}], "messages[0].role: must be one of"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role: must be one of"),
    ([says("user", "")], "messages[0].content: "),
    ([says("user", "é" * 32769)], "messages[0].content: "),
    ([{"role": "user", "content": 5}], "messages[0].content: "),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]: "),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text: "),
    ([{**says("user", "x"), "tool_calls": [call("t", 1)]}], "messages[0].tool_calls: "),
    ([asks(call("t", 1)), says("user", "x")], "messages[0]: calls a tool before"),
    ([says("user", "x"), {"role": "assistant", "function_call": {}}], "messages[1].function_call"),
    ([says("user", "x"), {"role": "assistant", "tool_calls": {"a": 1}}], "messages[1].tool_calls"),
    ([says("user", "x"), asks(call("t", 1) | {"type": "custom"})], "messages[1].tool_calls[0]"),
    ([says("user", "x"), asks(call("t", 1) | {"function": "t"})], "messages[1].tool_calls[0].fun"),
    ([says("user", "x"), asks(call("t", 1) | {"id": None})], "messages[1].tool_calls[0].id"),
    ([says("user", "x"), asks(call("", 1))], "messages[1].tool_calls[0]: tool"),
    ([says("user", "x"), asks(call("t" * 129, 1))], "messages[1].tool_calls[0]: tool"),
    ([says("user", "x"), asks(call("t", 1)), says("system", "s"), result("r")], "messages[3]"),
    ([says("user", "x"), asks(call("t", 1)), result("r"), result("again")], "messages[3].tool_"),
    ([says("user", "x"), asks(call("t", 1)), result("r", "other")], "messages[2].tool_call_id"),
    ([says("user", "x"), asks(call("t", 1)), result("r" * 300_000)], "messages[2].content: is l"),
    ([says("user", "x"), asks(call("t", 1)), {**result("r"), "content": 4}], "messages[2].content"),
]


@pytest.mark.guarantee("G-CLI-04")
@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_what_is_not_the_format_is_refused_with_its_place(bad: object, reason: str) -> None:
    from engine_assistant.cli.replay.messages import conversation
    from engine_assistant.cli.replay.script import Broken

    value = {"id": "bad", "messages": bad} if isinstance(bad, list) else bad
    with pytest.raises(Broken) as refused:
        conversation(value)  # type: ignore[arg-type]
    assert str(refused.value).startswith(reason)


@pytest.mark.guarantee("G-CLI-04")
@pytest.mark.parametrize(
    "arguments", ["{", "[1]", "NaN", '{"a": 1e400}', '{"a": 1, "a": 2}', '"x"']
)
def test_arguments_that_are_not_a_json_object_are_refused(arguments: str) -> None:
    from engine_assistant.cli.replay.messages import conversation
    from engine_assistant.cli.replay.script import Broken

    made = call("t", 1)
    made["function"]["arguments"] = arguments
    with pytest.raises(Broken, match=r"^messages\[1\]\.tool_calls\[0\]\.function\.arguments: "):
        conversation({"id": "bad", "messages": [says("user", "x"), asks(made)]})


def test_events_are_cut_into_batches_that_fit() -> None:
    from engine_assistant import Limits
    from engine_assistant.cli.replay.script import batches
    from engine_assistant.model.events import TextDelta, body_of

    for size, count in ((10, 1000), (200_000, 50), (1, 3)):
        events = [TextDelta(text="x" * size) for _ in range(count)]
        cut = list(batches(events))
        assert [event for batch in cut for event in batch] == events
        for batch in cut:
            assert 1 <= len(batch) <= Limits().batch_events
            assert sum(len(body_of(event)) for event in batch) <= Limits().batch_bytes


@pytest.mark.guarantee("G-CLI-07")
def test_a_gate_that_no_call_went_through_is_told(sqlite_url: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", eventful())
    done = run("replay", file, "--gate", "refund,refnud", "--database", sqlite_url)
    assert done.returncode == 0
    assert "No call of refnud was seen." in done.stdout.splitlines()
