"""A record with a bit of everything in it, walked through the public API with a clock by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from engine_assistant import RUN, USE, Assistant, Caller, Operations
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import Request

Fields = Mapping[str, object]

TENANT, OWNER = "acme", "usr_alice"
INPUT: dict[str, JsonValue] = {"order": 1234567890123456789, "amount": 1.5, "note": "a\0b"}
ASKED = {"operation": "refunds/create", "version": "v1"}
LEASE, LONG, SHORT = 100.0, 600.0, 5.0
"""Seconds: a lease, an expiry that does not lapse, and one that does."""
MODEL: Fields = {"operation_id": "o1", "kind": "model", "phase": "streaming", "step": "s1"}
USAGE: Fields = {
    "input": {"value": 3, "provenance": "reported"},
    "cost": {"value": "0.10", "currency": "EUR", "provenance": "computed"},
}
FINISH: Fields = {"type": "turn-finish", "reason": "done"}


@dataclass
class Record:
    """Threads by the name of what happened on them."""

    engine: Engine
    now: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    threads: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.assistant = Assistant(self.engine, clock=self.tick)
        robot = Caller(tenant=TENANT, principal="sys_robot", permissions={RUN}, system=True)
        self.bot = self.assistant.acting_as(robot)

    def tick(self) -> datetime:
        """Let a millisecond pass whenever somebody asks for the time."""
        self.now += timedelta(milliseconds=1)
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def person(self, name: str = OWNER) -> Operations:
        caller = Caller(tenant=TENANT, principal=name, permissions={USE}, channel="web")
        return self.assistant.acting_as(caller)

    def open(self, name: str) -> Story:
        story = Story(self, self.person().create_thread(title=name).id)
        self.threads[name] = story.thread_id
        return story


@dataclass
class Story:
    """One thread and the run that holds its lease."""

    record: Record
    thread_id: str
    run_id: str = "run-1"
    fence: int = 0
    batch: int = 0
    asked: dict[str, Request] = field(default_factory=dict)

    @property
    def me(self) -> Operations:
        return self.record.person()

    def say(self, text: str = "hello", **more: object) -> Story:
        self.me.call("assistant/send-message", {"thread_id": self.thread_id, "text": text, **more})
        return self

    def line_up(self, text: str, **more: object) -> Story:
        """Say something that waits while the turn is not over."""
        return self.say(text, **{"when_busy": "queue", **more})

    def waiting(self) -> list[str]:
        """Answer the ids of the messages that wait, in their order."""
        page = self.me.list_inputs(thread_id=self.thread_id, state="queued")
        return [item.input_id for item in page.items]

    def give_up(self) -> Story:
        command = {"thread_id": self.thread_id, "reason": "gone", "fence": self.fence}
        self.record.bot.call("assistant/abandon-turn", command)
        return self

    def take(self, run_id: str | None = None) -> Story:
        self.run_id = run_id or self.run_id
        lease = self.record.bot.acquire_run(
            thread_id=self.thread_id, run_id=self.run_id, stale_after=LEASE
        )
        self.fence, self.batch = lease.fence, 0
        return self

    def write(self, *events: Fields, usage: Fields | None = None) -> Story:
        self.batch += 1
        self.record.bot.append_events(
            thread_id=self.thread_id,
            run_id=self.run_id,
            fence=self.fence,
            events=events,
            batch=self.batch,
            usage=usage,
        )
        return self

    def propose(self, call: str, provider: str | None = None, *, repeatable: bool = False) -> Story:
        event = {"type": "tool-input", "call_id": call, "tool": "refund", "step": "s1"}
        if provider is not None:
            event["provider_call_id"] = provider
        return self.write({**event, "input": INPUT, "repeatable": repeatable})

    def ask(
        self,
        call: str,
        *approvers: str,
        required: int = 1,
        expires_in: float = LONG,
        reissue: bool = False,
        why: str | None = None,
    ) -> Story:
        self.asked[call] = self.record.bot.request_approval(
            thread_id=self.thread_id,
            run_id=self.run_id,
            fence=self.fence,
            call_id=call,
            **ASKED,
            expires_in=expires_in,
            approvers=approvers or None,
            required=required,
            reissue=reissue,
            why=why,
        )
        return self

    def answer(
        self, call: str, approved: bool = True, by: str = OWNER, reason: str | None = None
    ) -> Story:
        digest = {r.approver: r.digest for r in self.asked[call].requests}[by]
        self.record.person(by).resolve_approval(
            thread_id=self.thread_id,
            call_id=call,
            approved=approved,
            digest=digest,
            version="v1" if approved else None,
            reason=reason,
        )
        return self

    def claim(self, call: str, attempt: int | None = None) -> Story:
        self.record.bot.claim_execution(
            thread_id=self.thread_id,
            run_id=self.run_id,
            fence=self.fence,
            call_id=call,
            **ASKED,
            input=INPUT,
            attempt=attempt,
        )
        return self

    def does(self, operation: str, command: Fields) -> Story:
        """Do something as the run that holds the lease."""
        held = {"thread_id": self.thread_id, "run_id": self.run_id, "fence": self.fence}
        self.record.bot.call(f"assistant/{operation}", {**held, **command})
        return self

    def settle(self, call: str, fence: int, **result: JsonValue) -> Story:
        command = {"thread_id": self.thread_id, "call_id": call, "claimed_fence": fence, **result}
        self.record.bot.call("assistant/settle-execution", command)
        return self

    def resolve(self, call: str, **said: object) -> Story:
        """Say, as the owner, what became of a call that nobody can tell of."""
        command = {"thread_id": self.thread_id, "call_id": call, **said}
        self.me.call("assistant/resolve-unknown", command)
        return self

    def rest(self, reason: str = "done") -> Story:
        return self.write({"type": "turn-finish", "reason": reason})

    def stop(self) -> Story:
        self.me.interrupt_turn(thread_id=self.thread_id)
        return self

    def summarise(self, first: int, last: int, summary: str = "They talked.") -> Story:
        head = self.me.get_thread(thread_id=self.thread_id).last_seq
        self.record.bot.compact(
            thread_id=self.thread_id,
            from_seq=first,
            to_seq=last,
            summary=summary,
            expected_head=head,
        )
        return self

    def close(self) -> Story:
        self.me.close_thread(thread_id=self.thread_id)
        return self


def output(call: str, value: JsonValue = "ok") -> Fields:
    return {"type": "tool-output", "call_id": call, "output": value}


def failure(call: str) -> Fields:
    return {"type": "tool-error", "call_id": call, "code": "broken", "message": "it broke"}


def words(*texts: str) -> Sequence[Fields]:
    return [{"type": "text-delta", "text": text} for text in texts]


# ---------------------------------------------------------------- what happens


def _everyday(record: Record) -> None:
    story = record.open("everyday")
    file = record.bot.register_file(
        thread_id=story.thread_id,
        filename="bill.pdf",
        content_type="application/pdf",
        size=7,
        sha256="0" * 64,
    )
    story.say("refund order 7 \0", key="m1", attachment_ids=[file.id]).take()
    story.write({"type": "step-start", "step": "s1"}, *words("Let me ", "look. \0\n"))
    story.propose("c1", "call_abc").propose("c1", "call_def").write(output("c1", {"found": True}))
    story.propose("c2").ask("c2").rest("awaiting-approval")
    story.answer("c2", reason="it is fine").take("run-2").claim("c2", attempt=1)
    story.write(output("c2", None), {"type": "step-finish", "usage": {"tokens": 7}})
    story.write(*words("Done."), {"type": "turn-finish", "reason": "done"})
    story.say("thanks", key="m2").take().write(*words("You are welcome.")).rest()
    story.say("no key").take().propose("c9").write(failure("c9"))
    story.write({"type": "turn-error", "code": "model", "message": "gone", "retryable": True})


def _people(record: Record) -> None:
    story = record.open("quorum").say().take().propose("c1")
    story.ask("c1", "usr_a", "usr_b", "usr_c", required=2).rest("awaiting-approval")
    story.answer("c1", by="usr_a").answer("c1", by="usr_c").take().claim("c1").write(output("c1"))
    story.propose("c2").ask("c2", "usr_a", "usr_b", required=2).rest("awaiting-approval")
    story.answer("c2", by="usr_a").answer("c2", False, by="usr_b", reason="no").take().rest()

    story = record.open("reissue").say().take().propose("c1").ask("c1", "usr_a", "usr_b")
    story.rest("awaiting-approval").take().ask("c1", "usr_b", reissue=True, why="newer")
    story.answer("c1", by="usr_b").ask("c1", reissue=True).rest("awaiting-approval")
    story.answer("c1").take().claim("c1").write(failure("c1")).propose("c2").ask("c2")
    asked = story.me.read_events(thread_id=story.thread_id, last=1).events[0]
    again = asked.model_dump(exclude={"seq", "turn", "at"})
    story.write(again).rest("awaiting-approval").answer("c2", False)
    story.take().rest("refused")

    story = record.open("superseded").say().take()
    story.propose("c1").ask("c1").propose("c2").ask("c2", expires_in=SHORT)
    story.rest("awaiting-approval").take()
    story.say("never mind", supersede_approvals=True).take().rest()


def _time(record: Record) -> None:
    story = record.open("lapsed").say().take().propose("c1").ask("c1", expires_in=SHORT)
    story.propose("c2").ask("c2", expires_in=SHORT).rest("awaiting-approval")
    record.wait(SHORT)
    story.take("run-2").propose("c3").ask("c3", expires_in=SHORT).answer("c3")
    record.wait(SHORT)
    story.write(failure("c3")).propose("c4").ask("c4", expires_in=SHORT)
    story.rest("awaiting-approval")
    record.wait(SHORT)
    story.say("hello again").take().propose("c5").ask("c5", expires_in=SHORT)
    story.propose("c6").ask("c6").rest("awaiting-approval")
    record.wait(SHORT)
    story.answer("c6").take().claim("c6").write(output("c6")).rest()

    story = record.open("denied late").say().take().propose("c1").ask("c1", expires_in=SHORT)
    story.propose("c2").ask("c2", expires_in=SHORT).rest("awaiting-approval")
    record.wait(SHORT)
    story.answer("c1", False).take().rest("limit")


def _lost(record: Record) -> None:
    story = record.open("taken over").say().take().propose("c1").propose("c2").ask("c2")
    story.answer("c2").claim("c2").propose("c3").ask("c3").answer("c3")
    first = story.fence
    record.wait(LEASE)
    story.take("run-2").settle("c1", first, output={"late": True})
    story.settle("c2", first, error={"code": "late", "message": "too late"})
    story.claim("c3").settle("c3", story.fence, output=7).propose("c4")
    record.bot.release_run(thread_id=story.thread_id, run_id="run-2", fence=story.fence)
    second = story.fence
    story.take("run-3").rest("max-tokens").settle("c4", second, output=None)

    story = record.open("interrupted").say().take().propose("c1").propose("c2").ask("c2")
    story.stop()
    record.wait(10)
    story.stop().stop().say().stop().say().take().propose("c3").ask("c3").rest("awaiting-approval")
    story.take().stop().say().take().propose("c4").ask("c4").answer("c4").propose("c5")
    story.rest("interrupted")


def _closed(record: Record) -> None:
    record.open("closed idle").say().take().rest().close()
    record.open("closed at once").close()
    story = record.open("closed waiting").say().take().propose("c1").ask("c1")
    story.rest("awaiting-approval").close()
    story = record.open("closed running").say().take().propose("c1").ask("c1").answer("c1")
    story.claim("c1").propose("c2").close()
    story.settle("c1", story.fence, output={"after": "all"})
    story.settle("c2", story.fence, error={"code": "late", "message": "too late"})


def _queued(record: Record) -> None:
    story = record.open("queued")
    file = record.bot.register_file(
        thread_id=story.thread_id,
        filename="bill.pdf",
        content_type="application/pdf",
        size=7,
        sha256="0" * 64,
    )
    story.say("one", key="q1").take().line_up("two \0", key="q2", attachment_ids=[file.id])
    story.line_up("three", coalesce=True).line_up("four", priority="next").line_up("five")
    story.line_up("left", when_busy="steer").line_up("taken back", key="q3")
    story.me.edit_input(thread_id=story.thread_id, input_id=story.waiting()[2], text="two!")
    story.me.cancel_input(thread_id=story.thread_id, input_id=story.waiting()[-1])
    record.bot.take_inputs(thread_id=story.thread_id, run_id=story.run_id, fence=story.fence)
    story.write(*words("Left, then.")).rest().take().rest().take().write(*words("Both."))
    story.line_up("six", attachment_ids=[file.id]).line_up("seven", coalesce=True)
    story.line_up("stop", when_busy="interrupt").line_up("right", when_busy="steer")

    story = record.open("given up").say().line_up("next").take().propose("c1").give_up()
    story.take().propose("c2").ask("c2", expires_in=SHORT).line_up("left", when_busy="steer")
    story.rest("awaiting-approval")
    record.wait(SHORT)
    story.line_up("right", when_busy="steer").take()
    record.bot.take_inputs(thread_id=story.thread_id, run_id=story.run_id, fence=story.fence)
    story.give_up().line_up("at once").line_up("no, this", when_busy="interrupt").take().rest()

    story = record.open("closed busy").say().take().line_up("two").line_up("three").close()


def _told(record: Record) -> None:
    said = [{"role": "user", "text": "from elsewhere \0"}, {"role": "assistant", "text": "yes"}]
    thread = record.bot.seed_thread(subject=OWNER, key="seeds", messages=said, title="seeded")
    record.threads["seeded"] = thread.id
    story = Story(record, thread.id).say().take().write(*words("Hello."), {"type": "step-finish"})
    story.summarise(1, 2).rest()

    story, step = record.open("summarised"), {"type": "step-start"}
    story.say().take().write(step, *words("Let me ", "look.")).propose("c1").write(output("c1"))
    story.summarise(1, 1).write(step, *words("And")).propose("c2").propose("c3")
    story.write(output("c3"), step, *words("Nothing")).summarise(3, 12)
    story.write(output("c2"), step, *words(" yet.")).rest().summarise(1, 14).say().take()
    story.propose("c4").take().write(step, *words("Gone.")).rest().summarise(18, 24)


def _recovered(record: Record) -> None:
    story = record.open("recovered").say().take().does("record-operation", MODEL)
    story.does("put-context", {"state": "opaque"}).write(*words("Let me"), usage=USAGE)
    story.propose("c1", repeatable=True).propose("c2", repeatable=True).ask("c2").answer("c2")
    story.claim("c2", attempt=1).propose("c3").propose("c4", repeatable=True)
    record.wait(LEASE)
    story.take("run-2").does("retry-call", {"call_id": "c1", "attempt": 1})
    story.does("retry-call", {"call_id": "c2", **ASKED, "input": INPUT, "attempt": 2})
    story.resolve("c3", happened=False, reason="I looked").write(output("c1", "found"))
    story.take("run-2").settle("c2", story.fence - 1, output="after all")
    story.resolve("c4", happened=True, output={"so": 1}).does("record-operation", MODEL)
    story.does("record-operation", {**MODEL, "first_output": True})
    story.does("put-context", {"state": "more"}).write(*words("Done."), FINISH, usage=USAGE)

    story = record.open("asked at last").say().take().propose("c1", repeatable=True).take()
    story.does("retry-call", {"call_id": "c1", "attempt": 1}).ask("c1").answer("c1").claim("c1")
    story.take().does("retry-call", {"call_id": "c1", **ASKED, "input": INPUT})
    story.write(output("c1")).rest().say().take().rest()

    story = record.open("resolved closed").say().take().propose("c1").propose("c2")
    story.does("put-context", {"state": "opaque"}).close()
    story.resolve("c1", happened=True, output=7).resolve("c2", happened=False)


def _unfinished(record: Record) -> None:
    record.open("empty")
    story = record.open("kept").say().take().does("put-context", {"state": "opaque \U0001f600"})
    story.does("record-operation", MODEL).propose("c1").ask("c1").rest("awaiting-approval")
    story = record.open("running").say().take().propose("c1").propose("c2").ask("c2").answer("c2")
    story.claim("c2").propose("c3").ask("c3").write(*words("one", "two")).stop()
    record.open("without a run").say()
    story = record.open("waiting").say().take().propose("c1").ask("c1")
    story.propose("c2").ask("c2", "usr_a", "usr_b", required=2, expires_in=SHORT)
    story.rest("awaiting-approval").answer("c2", by="usr_b").take()
    record.open("let go").say().take().write(*words("wait"))
    other = Caller(tenant="other", principal=OWNER, permissions={USE})
    record.assistant.acting_as(other).create_thread()


def walk(engine: Engine) -> Record:
    """Let everything that can happen to a thread happen."""
    record = Record(engine)
    for happens in _chapters():
        happens(record)
    return record


def unfinished(engine: Engine) -> Record:
    """Begin a few threads and leave them where they are."""
    record = Record(engine)
    _unfinished(record)
    return record


def _chapters() -> Iterator[Callable[[Record], None]]:
    yield from (_everyday, _people, _time, _lost, _closed, _queued, _told, _recovered, _unfinished)
