"""Values whose trouble is in their size, their depth or their time: exact edges, typed refusals."""

import pytest

from engine_assistant import (
    ApprovalBinding,
    Assistant,
    AssistantError,
    ConflictReason,
    Limits,
    ValidationFailed,
    approval_digest,
)
from engine_assistant.model.events import TextDelta, ToolInput
from tests.rig.stage import (
    INPUT,
    ROBOT,
    Play,
    Stage,
    Values,
    delta,
    dump,
    everything_said,
    propose,
    refused,
)

MARKER = "hunter2"
KIB = 1024


def _nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def _refused_whole(play: Play, *events: Values) -> AssistantError:
    """Expect that a batch is refused as wrong, keeps nothing and repeats nothing."""
    before = dump(play.stage.engine)
    with pytest.raises(ValidationFailed) as refusal:
        play.stage.append(play.run, *events)
    assert dump(play.stage.engine) == before
    assert MARKER not in everything_said(refusal.value)
    return refusal.value


@pytest.mark.guarantee("G-INPUT-05")
@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
def test_strings_are_bounded_in_bytes_and_exactly_the_limit_is_kept(
    stage: Stage, letter: str
) -> None:
    def exactly(limit: int) -> str:
        size = len(letter.encode())
        return letter * (limit // size) + "a" * (limit % size)

    thread = stage.me.create_thread(title=exactly(1024), key=exactly(128))
    assert stage.me.get_thread(thread_id=thread.id).title == exactly(1024)
    stage.me.send_message(thread_id=thread.id, text=exactly(64 * KIB), key=exactly(128))
    assert stage.me.read_events(thread_id=thread.id).events[0].text == exactly(64 * KIB)
    run = stage.take(thread.id, exactly(128))
    stage.propose(run, exactly(128), tool=exactly(128), step=exactly(128))
    digests = stage.ask(
        run, exactly(128), operation=exactly(128), version=exactly(128), why=exactly(2048)
    )
    stage.me.resolve_approval(
        thread_id=thread.id,
        call_id=exactly(128),
        approved=False,
        digest=digests["usr_alice"],
        reason=exactly(2048),
    )
    call = stage.me.get_call(thread_id=thread.id, call_id=exactly(128))
    assert (call.tool, call.approvals[0].reason) == (exactly(128), exactly(2048))


@pytest.mark.guarantee("G-INPUT-06")
def test_an_event_of_exactly_the_limit_is_kept_and_a_byte_more_is_not(play: Play) -> None:
    around = len('{"text":"","type":"text-delta"}')
    fits = "é" * ((256 * KIB - around) // 2)
    fits += "a" * (256 * KIB - around - len(fits.encode()))
    (seq,) = play.stage.append(play.run, delta(fits))
    read = play.stage.me.read_events(thread_id=play.thread_id, after=seq - 1).events[0]
    assert read.text == fits
    _refused_whole(play, delta(fits + "a"))
    _refused_whole(play, delta("fits"), {"type": "data", "kind": "k", "payload": fits})
    # What counts is what is stored: a NUL takes six bytes in JSON.
    _refused_whole(play, delta("\0" * (43 * KIB)))


@pytest.mark.guarantee("G-INPUT-06")
def test_a_batch_is_bounded_in_events_and_in_bytes(play: Play) -> None:
    play.stage.append(play.run, *[delta("a")] * 256)
    _refused_whole(play, *[delta(MARKER)] * 257)
    _refused_whole(play)
    whole, around = 4 * KIB * KIB, len('{"text":"","type":"text-delta"}')
    body = 256 * KIB - around
    play.stage.append(play.run, *[delta("a" * body)] * 16)
    assert 16 * (body + around) == whole
    _refused_whole(play, *[delta("a" * body)] * 16, delta(""))


@pytest.mark.guarantee("G-INPUT-07")
def test_json_of_exactly_the_limit_is_shown_everywhere(play: Play) -> None:
    """As deep and as many digits as may be: what is admitted can be read in every view."""
    stage, run = play.stage, play.run
    value = {"deep": _nested(63), "digits": -(10**1000 - 1), "edge": [1.5, 2**53 + 1, -0.0, 1e308]}
    stage.propose(run, "edge", input=value)
    digest = stage.ask(run, "edge")["usr_alice"]
    shown = {one.call_id: one for one in stage.me.list_approvals().items}["edge"]
    assert (shown.input, shown.digest) == (value, digest)
    stage.approve(run, "edge", digest)
    stage.claim(run, "edge", input=value)
    stage.append(run, {"type": "tool-output", "call_id": "edge", "output": value})
    call = stage.me.get_call(thread_id=play.thread_id, call_id="edge")
    assert (call.input, call.result) == (value, {"output": value})
    listed = stage.me.list_calls(thread_id=play.thread_id, state="done")
    assert listed.items == (call,)
    late = {"thread_id": play.thread_id, "call_id": "executing", "claimed_fence": run["fence"]}
    stage.bot.settle_execution(**late, output=value)
    last = stage.me.read_events(thread_id=play.thread_id, last=1).events[0]
    assert last.output == value
    stage.append(run, {"type": "step-finish", "usage": {"deep": _nested(64)}})
    assert stage.me.read_events(thread_id=play.thread_id, last=1).events[0].usage == {
        "deep": _nested(64)
    }


@pytest.mark.guarantee("G-INPUT-01", "G-INPUT-02")
@pytest.mark.parametrize(
    "value",
    [
        {"n": float("nan")},
        [float("inf")],
        [1e400],
        ["\ud800"],
        {"\udfff": 1},
        _nested(65),
        _nested(5000),
        {1: MARKER},
        [10**1000],
        10**5000,
        (MARKER,),
        {"a": {MARKER}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_json_that_cannot_be_kept_is_refused_wherever_it_stands(play: Play, value: object) -> None:
    good = delta("good")
    for event in (
        propose("new", input=value),
        {"type": "tool-output", "call_id": "executing", "output": value},
        {"type": "tool-progress", "call_id": "executing", "payload": value},
        {"type": "data", "kind": "k", "payload": value},
        {"type": "step-finish", "usage": {"model": value}},
    ):
        _refused_whole(play, good, event)


@pytest.mark.guarantee("G-INPUT-01")
def test_what_the_engine_gives_is_not_taken_from_a_run(play: Play) -> None:
    given = ({"seq": 7}, {"turn": 1}, {"at": "2030-01-01T00:00:00.000Z"}, {"seq": True})
    for field in given:
        _refused_whole(play, {**delta(MARKER), **field})
    for field in ({"seq": MARKER}, {"at": MARKER}, {"more": MARKER}, {"type": MARKER}):
        _refused_whole(play, {**delta("x"), **field})
    late = {"type": "tool-output", "call_id": "executing", "output": MARKER, "late": True}
    _refused_whole(play, late)


@pytest.mark.guarantee("G-INPUT-08")
def test_a_model_made_beforehand_is_checked_like_a_dict(play: Play) -> None:
    append = play.stage.bot.append_events
    changed = ToolInput(call_id="new", tool="refund", input={"a": 1}, step="s")
    assert isinstance(changed.input, dict)
    changed.input["a"] = float("nan")
    unchecked = TextDelta.model_construct(text=["hunter2"])
    before = dump(play.stage.engine)
    for event in (changed, unchecked):
        with pytest.raises(ValidationFailed) as refusal:
            append(**play.run, events=[event])
        assert MARKER not in everything_said(refusal.value)
    lower = Assistant(play.stage.engine, limits=Limits(event_bytes=40)).acting_as(ROBOT)
    with pytest.raises(ValidationFailed):
        lower.append_events(**play.run, events=[TextDelta(text=MARKER * 4)])
    assert dump(play.stage.engine) == before
    assert append(**play.run, events=[TextDelta(text="fine")]).events[0].text == "fine"


def _request(play: Play, **changed: object) -> Values:
    """Answer a ready request for the running call, right unless something is changed."""
    bound: dict[str, object] = {
        "version": "v1",
        "approver": "usr_alice",
        "tenant": "acme",
        "thread": play.thread_id,
        "step": "s1",
        "call": "running",
        "operation": "refunds/create",
        "expires_at": "2030-01-01T01:00:00.000Z",
        "nonce": "n1",
        "input": INPUT,
    }
    bound |= {key: value for key, value in changed.items() if key in bound}
    digest = approval_digest(ApprovalBinding(**bound)) if "digest" not in changed else "0" * 64
    slot = {"approver": bound["approver"], "nonce": bound["nonce"], "digest": digest}
    event = {key: bound[key] for key in ("input", "step", "operation", "version", "expires_at")}
    event |= {"type": "approval-request", "call_id": "running", "tool": "refund"}
    return event | {"required": 1, "requests": [slot], **changed.get("event", {})}


@pytest.mark.guarantee("G-INPUT-09")
@pytest.mark.parametrize(
    "expires_at",
    [
        "2031-01-01T00:00:00.000",
        "2031-01-01T00:00:00Z",
        "2031-01-01T00:00:00.000+00:00",
        "2031-01-01 00:00:00.000Z",
        "2031-02-30T00:00:00.000Z",
        "2031-01-01T24:00:00.000Z",
        "2031-01-01T00:00:00.000Z\n",
        "\uff12031-01-01T00:00:00.000Z",
        "9999999",
        "",
        MARKER,
        1924992000,
        None,
    ],
)
def test_an_expiry_that_is_naive_or_no_time_is_refused(play: Play, expires_at: object) -> None:
    event = {**_request(play), "expires_at": expires_at}
    error = _refused_whole(play, event)
    if expires_at:
        assert str(expires_at).strip() not in everything_said(error)


@pytest.mark.guarantee("G-INPUT-09")
def test_an_expiry_that_has_come_is_refused_and_one_millisecond_later_is_not(play: Play) -> None:
    before = dump(play.stage.engine)
    for past in (
        "2030-01-01T00:00:00.000Z",
        "2029-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00.000Z",
    ):
        with refused(ConflictReason.APPROVAL_EXPIRED):
            play.stage.append(play.run, _request(play, expires_at=past))
    assert dump(play.stage.engine) == before
    play.stage.append(play.run, _request(play, expires_at="2030-01-01T00:00:00.001Z"))
    assert play.stage.state_of(play.run, "running") == "awaiting-approval"


@pytest.mark.guarantee("G-INPUT-10")
def test_a_request_names_few_different_people_and_not_more_than_they_are(play: Play) -> None:
    slot = _request(play)["requests"][0]
    before = dump(play.stage.engine)
    many = [{**slot, "approver": f"p{n}"} for n in range(21)]
    for change in (
        {"requests": []},
        {"requests": [slot, slot]},
        {"requests": many},
        {"required": 2},
    ):
        with pytest.raises(ValidationFailed):
            play.stage.append(play.run, {**_request(play), **change})
    for change in ({"approvers": ["p", "p"]}, {"required": 2}, {"approvers": ["p"], "required": 2}):
        with pytest.raises(ValidationFailed):
            play.stage.ask(play.run, "running", **change)
    assert dump(play.stage.engine) == before
    people = [f"p{n}" for n in range(20)]
    assert set(play.stage.ask(play.run, "running", approvers=people, required=20)) == set(people)


@pytest.mark.guarantee("G-INPUT-11")
def test_a_late_result_is_bounded_on_a_closed_thread_too(play: Play) -> None:
    stage = play.stage
    late = {"thread_id": play.thread_id, "call_id": "executing", "claimed_fence": play.run["fence"]}
    stage.me.close_thread(thread_id=play.thread_id)
    before = dump(stage.engine)
    with pytest.raises(ValidationFailed):
        stage.bot.settle_execution(**late, output="a" * (256 * KIB))
    assert dump(stage.engine) == before
    assert stage.bot.settle_execution(**late, output="a" * KIB).seq is None
