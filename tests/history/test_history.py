"""What `history` answers: to whom, of what moment, and within which budget."""

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, NotFound, make_engine
from engine_assistant.model.views.history import History, HistoryMessage
from tests.rig.chats import refused as refused_by_providers
from tests.rig.logs import brief
from tests.rig.stage import ALICE, AUDITOR, BOB, TWIN, Stage, Values, delta, dump, propose

STEP = {"type": "step-start"}


def _talk(stage: Stage) -> Values:
    """Two turns: in the first a call runs and one is denied, the second goes on."""
    run = stage.open_turn(text="refund both")
    stage.append(run, STEP, delta("Let me "), delta("see."), propose("c1"), propose("c2"))
    stage.append(run, {"type": "tool-output", "call_id": "c1", "output": {"ok": True}})
    digest = stage.ask(run, "c2")["usr_alice"]
    stage.me.resolve_approval(
        thread_id=str(run["thread_id"]),
        call_id="c2",
        approved=False,
        digest=digest,
        reason="too much \u202e",
    )
    stage.append(run, STEP, delta("Only one."))
    stage.rest(run)
    stage.me.send_message(thread_id=str(run["thread_id"]), text="why?")
    return stage.take(str(run["thread_id"]), "r2")


@pytest.mark.guarantee("G-HIST-01", "G-HIST-04")
def test_a_history_is_the_talk(stage: Stage) -> None:
    run = _talk(stage)
    told = stage.me.history(thread_id=str(run["thread_id"]))
    assert brief(told.messages) == [
        *("user refund both", "assistant Let me see.(c1 c2)", "tool c1=output c2=denied"),
        *("assistant Only one.()", "user why?"),
    ]
    denied = told.messages[2].results[1]
    assert (denied.code, denied.reason, denied.tool) == ("denied", "too much \u202e", "refund")
    assert denied.message.endswith("It did not run.")
    assert told.head_seq == stage.me.get_thread(thread_id=str(run["thread_id"])).last_seq
    assert told.omitted == 0
    assert refused_by_providers(told.messages) is None
    plain = stage.me.call("assistant/history", {"thread_id": run["thread_id"]})
    assert History.model_validate(plain) == told


@pytest.mark.guarantee("G-HIST-01")
def test_a_history_of_nothing_is_empty(stage: Stage) -> None:
    told = stage.me.history(thread_id=stage.me.create_thread().id)
    assert (told.messages, told.head_seq, told.omitted) == ((), 0, 0)


@pytest.mark.guarantee("G-HIST-01")
def test_a_message_keeps_its_files(stage: Stage) -> None:
    thread = stage.me.create_thread().id
    about = {"filename": "a.pdf", "content_type": "application/pdf", "size": 7, "sha256": "0" * 64}
    file = stage.bot.register_file(thread_id=thread, **about)
    stage.me.send_message(thread_id=thread, text="see", attachment_ids=[file.id])
    (message,) = stage.me.history(thread_id=thread).messages
    assert [part.model_dump() for part in message.files] == [{"id": file.id, **about}]


@pytest.mark.guarantee("G-HIST-08")
def test_owner_auditor_and_run_read_it_and_nobody_else(stage: Stage) -> None:
    thread_id = str(_talk(stage)["thread_id"])
    before = dump(stage.engine)
    told = stage.me.history(thread_id=thread_id)
    assert stage.bot.history(thread_id=thread_id) == told
    assert stage.assistant.acting_as(AUDITOR).history(thread_id=thread_id) == told
    for stranger in (BOB, *TWIN.values()):
        for reading in ("history", "list_compactions"):
            with pytest.raises(NotFound):
                getattr(stage.assistant.acting_as(stranger), reading)(thread_id=thread_id)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-HIST-01", "G-HIST-08")
def test_a_history_is_of_one_moment(stage: Stage) -> None:
    """Between its first statement and its second, a run goes on and all of it is summarised."""
    run = _talk(stage)
    thread_id = str(run["thread_id"])
    before = stage.me.history(thread_id=thread_id)
    reader = make_engine(stage.engine.url)
    asked: list[str] = []

    def meanwhile(_c: object, _u: object, statement: str, *_rest: object) -> None:
        asked.extend([statement] if statement.startswith("SELECT") else [])
        if len(asked) == 2:
            stage.append(run, delta("Because."), {"type": "step-finish"})
            stage.bot.compact(
                thread_id=thread_id,
                from_seq=1,
                to_seq=before.head_seq + 2,
                summary="They talked.",
                expected_head=before.head_seq + 2,
            )

    sa.event.listen(reader, "before_cursor_execute", meanwhile)
    told = Assistant(reader).acting_as(ALICE).history(thread_id=thread_id)
    reader.dispose()
    assert len(asked) > 1
    assert told == before
    assert brief(stage.me.history(thread_id=thread_id).messages) == ["summary They talked."]


@pytest.mark.guarantee("G-HIST-02")
def test_a_run_that_lost_its_call_hears_of_it_later_in_a_note(stage: Stage) -> None:
    run = stage.open_turn()
    thread_id = str(run["thread_id"])
    stage.append(run, STEP, propose("c1"))
    stage.clock.forward(60)
    second = stage.take(thread_id, "r2")
    stage.append(second, STEP)
    told = stage.bot.history(thread_id=thread_id).messages
    assert brief(told) == ["user Hello", "assistant (c1)", "tool c1=unknown"]
    stage.append(second, delta("I "))
    stage.bot.settle_execution(
        thread_id=thread_id, call_id="c1", claimed_fence=int(str(run["fence"])), output=7
    )
    stage.append(second, delta("see."))
    later = stage.bot.history(thread_id=thread_id).messages
    assert later[:3] == told
    assert brief(later)[3:] == ["assistant I see.()", "note c1=output"]


# ---------------------------------------------------------------- the budget


def _turns(stage: Stage, count: int) -> str:
    """Make turns of 100 bytes each: 10 from the person, 90 from the assistant."""
    thread_id = stage.me.create_thread().id
    for number in range(count):
        stage.me.send_message(thread_id=thread_id, text=f"{number:010}")
        run = stage.take(thread_id, f"r{number}")
        stage.append(run, delta("é" * 40), delta("x" * 10))
        stage.rest(run)
    return thread_id


def _texts(messages: tuple[HistoryMessage, ...]) -> list[str]:
    return [message.text[-10:] for message in messages if message.role in ("user", "summary")]


@pytest.mark.guarantee("G-HIST-07")
@pytest.mark.parametrize(
    ("budget", "omitted"), [(1, 2), (199, 2), (200, 1), (299, 1), (300, 0), (2**63 - 1, 0)]
)
def test_the_oldest_turns_are_left_out_first_and_whole(
    stage: Stage, budget: int, omitted: int
) -> None:
    thread_id = _turns(stage, 3)
    told = stage.me.history(thread_id=thread_id, budget=budget)
    assert told.omitted == omitted
    assert _texts(told.messages) == [f"{number:010}" for number in range(omitted, 3)]
    assert len(told.messages) == 2 * (3 - omitted)
    assert told.messages == stage.me.history(thread_id=thread_id).messages[2 * omitted :]


@pytest.mark.guarantee("G-HIST-07")
def test_summaries_stay_and_take_from_the_budget(stage: Stage) -> None:
    thread_id = _turns(stage, 3)
    head = stage.me.history(thread_id=thread_id).head_seq
    stage.bot.compact(
        thread_id=thread_id, from_seq=1, to_seq=5, summary="s" * 100, expected_head=head
    )
    for budget, omitted in ((1, 1), (299, 1), (300, 0)):
        told = stage.me.history(thread_id=thread_id, budget=budget)
        assert (told.messages[0].role, told.omitted) == ("summary", omitted)
        assert _texts(told.messages)[1:] == [f"{number:010}" for number in range(1 + omitted, 3)]


@pytest.mark.guarantee("G-HIST-07")
def test_calls_and_results_count_as_they_are_stored(stage: Stage) -> None:
    run = stage.open_turn(text="12345")
    thread_id = str(run["thread_id"])
    stage.append(run, propose("c1", input={"a": "é"}))  # {"a":"é"} is 10 bytes
    stage.append(run, {"type": "tool-output", "call_id": "c1", "output": [1, 2]})  # 5 bytes
    stage.rest(run)
    stage.me.send_message(thread_id=thread_id, text="12345")
    assert stage.me.history(thread_id=thread_id, budget=25).omitted == 0
    assert stage.me.history(thread_id=thread_id, budget=24).omitted == 1
