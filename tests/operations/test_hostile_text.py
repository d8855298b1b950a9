"""Text that means something to somebody else is kept as it is, in every field."""

import json

import pytest
from sqlalchemy import Engine

from engine_assistant import AUDIT, RUN, USE, Assistant, Caller, Operations, ValidationFailed

HOSTILE = [
    "'; DROP TABLE assistant_events; --",
    '"quoted" and `ticked` and $tag$dollar$tag$',
    "%s %(name)s %% :x :name ? ?1 {0} {{}} ${y}",
    "\\ \\\\ \\n \\u0000 \\x00 E'\\''",
    "line\nfeed\r\n\ttab \x0b \x1b[31m \x7f",
    "separators \x1c\x1d\x1e\x1f \x85 \u2028 \u2029",
    "\u202eright to left\u202c \u0627\u0644\u0639 \u200f\u200b\ufeff",
    "e\u0301 is not \u00e9, \ufb01 is not fi",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U00010000 \U0010ffff \ufffe\uffff",
    " leading and trailing ",
    "NULL",
    '{"type":"turn-finish","reason":"done"}',
    "<script>alert(1)</script>",
    "a" * 128,
]


@pytest.mark.guarantee("G-INPUT-16")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_reads_back_equal_from_every_field(engine: Engine, text: str) -> None:
    assistant = Assistant(engine)
    me = assistant.acting_as(Caller(text, text, {USE}, channel=text))
    bot = assistant.acting_as(Caller(text, "robot", {RUN}, system=True))
    thread = me.create_thread(title=text, key=text)
    assert me.create_thread(title=text, key=text) == thread
    assert (thread.title, thread.key, thread.subject_id) == (text, text, text)
    file = bot.register_file(
        thread_id=thread.id, filename=text, content_type=text, size=0, sha256="0" * 64
    )
    sent = me.send_message(thread_id=thread.id, text=text, key=text, attachment_ids=[file.id])
    assert me.send_message(
        thread_id=thread.id, text=text, key=text, attachment_ids=[file.id]
    ) == sent.model_copy(update={"duplicate": True})
    lease = bot.acquire_run(thread_id=thread.id, run_id=text)
    run = {"thread_id": thread.id, "run_id": text, "fence": lease.fence}
    written = bot.append_events(
        **run,
        events=[
            {"type": "step-start", "step": text},
            {"type": "text-delta", "text": text},
            {"type": "reasoning-delta", "text": text},
            {"type": "data", "kind": text, "payload": {text: [text]}},
            {"type": "step-finish", "stop_reason": text, "usage": {text: text}},
        ],
    )
    call = {
        "type": "tool-input",
        "call_id": text,
        "tool": text,
        "step": text,
        "input": {text: text},
    }
    bot.append_events(**run, events=[{**call, "provider_call_id": text}])
    asked = bot.request_approval(
        **run, call_id=text, operation=text, version=text, expires_in=60, why=text
    )
    view = me.list_approvals(thread_id=thread.id).items[0]
    shown = (view.call_id, view.tool, view.step, view.operation, view.version, view.approver)
    assert set(shown) == {text}
    me.resolve_approval(
        thread_id=thread.id,
        call_id=text,
        approved=True,
        digest=asked.requests[0].digest,
        version=text,
        reason=text,
    )
    bot.claim_execution(
        **run, call_id=text, operation=text, version=text, input={text: text}, attempt=1
    )
    error = {"type": "tool-error", "call_id": text, "code": text, "message": text}
    bot.append_events(**run, events=[error, {"type": "turn-error", "code": text, "message": text}])
    kept = me.get_call(thread_id=thread.id, call_id=text)
    assert (kept.input, kept.provider_call_id) == ({text: text}, text)
    assert kept.result == {"error": {"code": text, "message": text}}
    assert (kept.approvals[0].reason, kept.approvals[0].channel) == (text, text)
    events = me.read_events(thread_id=thread.id).events
    assert events[0].files[0].filename == text
    assert events[2:7] == written.events
    assert json.loads(me.read_events_json(thread_id=thread.id))["events"][0]["text"] == text
    _is_told(bot, thread.id, text)
    _is_recovered(me, bot, text)
    auditor = assistant.acting_as(Caller(text, "auditor", {USE, AUDIT}))
    assert auditor.list_threads(subject=text).items[0].title == text


def _is_recovered(me: Operations, bot: Operations, text: str) -> None:
    """Read it in what a run does and keeps, and in what a person says of a lost call."""
    thread_id = me.create_thread(title=text).id
    me.send_message(thread_id=thread_id, text=text)
    held = {"thread_id": thread_id, "run_id": text}
    fence = bot.acquire_run(**held).fence
    done = bot.record_operation(
        **held, fence=fence, operation_id=text, kind=text, phase=text, step=text
    )
    view = me.get_run(thread_id=thread_id, fence=fence)
    assert (view.run_id, view.operation) == (text, done)
    assert {done.operation_id, done.kind, done.phase, done.step} == {text}
    bot.put_context(**held, fence=fence, state=text)
    call = {"type": "tool-input", "call_id": text, "tool": text, "step": text, "input": text}
    bot.append_events(**held, fence=fence, events=[call])
    assert bot.get_context(**held, fence=bot.acquire_run(**held).fence).state == text
    me.resolve_unknown(thread_id=thread_id, call_id=text, happened=False, reason=text)
    said = me.get_call(thread_id=thread_id, call_id=text).result
    assert said == {"error": {"code": "cancelled", "message": text}}


def _is_told(bot: Operations, thread_id: str, text: str) -> None:
    """Read it in the model's view, in a summary, and in what a thread began with."""
    told = bot.history(thread_id=thread_id)
    said, answer, asks, tool = told.messages
    assert {said.text, answer.text, asks.calls[0].tool, tool.results[0].message} == {text}
    assert asks.calls[0].input == {text: text}
    made = bot.compact(
        thread_id=thread_id, from_seq=1, to_seq=1, summary=text, expected_head=told.head_seq
    )
    assert bot.history(thread_id=thread_id).messages[0].text == made.summary == text
    seeds = [{"role": "user", "text": text}, {"role": "assistant", "text": text}]
    seeded = bot.seed_thread(subject="somebody", key=text, messages=seeds, title=text)
    assert {one.text for one in bot.history(thread_id=seeded.id).messages} == {text}
    assert bot.seed_thread(subject="somebody", key=text, messages=seeds, title=text).duplicate


@pytest.mark.guarantee("G-INPUT-17")
def test_nul_lives_in_json_and_in_messages_and_nowhere_else(engine: Engine) -> None:
    nul = "a\0b\0"
    assistant = Assistant(engine)
    me = assistant.acting_as(Caller("acme", "alice", {USE}))
    bot = assistant.acting_as(Caller("acme", "robot", {RUN}, system=True))
    thread = me.create_thread()
    me.send_message(thread_id=thread.id, text=nul)
    lease = bot.acquire_run(thread_id=thread.id, run_id="r")
    run = {"thread_id": thread.id, "run_id": "r", "fence": lease.fence}
    value = {nul: [nul, {nul: None}]}
    bot.append_events(
        **run,
        events=[
            {"type": "text-delta", "text": nul},
            {"type": "data", "kind": "k", "payload": value},
        ],
    )
    call = {"type": "tool-input", "call_id": "c", "tool": "t", "step": "s", "input": value}
    bot.append_events(
        **run, events=[call, {"type": "tool-output", "call_id": "c", "output": value}]
    )
    events = me.read_events(thread_id=thread.id).events
    assert (events[0].text, events[2].text, events[3].payload) == (nul, nul, value)
    view = me.get_call(thread_id=thread.id, call_id="c")
    assert (view.input, view.result) == (value, {"output": value})
    page = json.loads(me.read_events_json(thread_id=thread.id))
    assert page["events"][3]["payload"] == value
    assert [one.text for one in bot.history(thread_id=thread.id).messages[:2]] == [nul, nul]
    seeded = bot.seed_thread(subject="s", key="k", messages=[{"role": "user", "text": nul}])
    assert bot.history(thread_id=seeded.id).messages[0].text == nul
    with pytest.raises(ValidationFailed):
        bot.compact(thread_id=seeded.id, from_seq=1, to_seq=1, summary=nul, expected_head=1)
    for field in ("title", "key"):
        with pytest.raises(ValidationFailed):
            me.create_thread(**{field: nul})
    for field in ("tenant", "principal", "channel"):
        given = {"tenant": "acme", "principal": "alice", "channel": "web", field: nul}
        with pytest.raises(ValidationFailed):
            Caller(**given, permissions={USE})


@pytest.mark.guarantee("G-INPUT-16")
def test_what_merely_looks_alike_is_another_id(engine: Engine) -> None:
    """Ids compare by their bytes: no case folding, no normalising, no trimming, no numbers."""
    me = Assistant(engine).acting_as(Caller("acme", "alice", {USE}))
    alike = ["k", "K", "k ", "\u212a", "\u00e9", "e\u0301", "1", "01", "1.0", "ß", "ss", "İ", "i"]
    threads = {key: me.create_thread(key=key).id for key in alike}
    assert len(set(threads.values())) == len(alike)
    assert {key: me.create_thread(key=key).id for key in alike} == threads
    for name in ("Alice", "alice ", "a\u0301lice"):
        other = Assistant(engine).acting_as(Caller("acme", name, {USE}))
        assert other.list_threads().items == ()
