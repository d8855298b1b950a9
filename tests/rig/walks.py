"""A random walk over everything that can be done to one thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from engine_assistant.model.views import Settled
from tests.rig import drawn
from tests.rig.drawn import INPUTS, Drawn, Wanted, asks, mostly, seldom
from tests.rig.looking import look, moment
from tests.rig.model import PLAIN, Ask, Event, Said
from tests.rig.recovering import Recovering
from tests.rig.states import NO_DIGEST, OPERATION, VERSION
from tests.rig.walker import Draw

COMMANDS = (
    "send", "edit", "cancel", "interrupt", "close", "resolve", "acquire", "beat", "release",
    "take", "abandon", "append", "propose_and_ask", "request", "claim", "settle", "time_passes",
    "lose", "retry", "say", "put", "get",
)  # fmt: skip
WHILE: Mapping[str, Mapping[str, int]] = {
    # how often each command is given in which state of the turn
    "idle": {"send": 12, "settle": 2, "resolve": 1, "cancel": 1, "time_passes": 1, "close": 1,
             "say": 2},
    "open": {
        "append": 9, "propose_and_ask": 5, "request": 4, "resolve": 6, "claim": 7, "settle": 3,
        "acquire": 2, "beat": 1, "release": 1, "interrupt": 3, "time_passes": 4, "close": 1,
        "send": 6, "take": 3, "edit": 2, "cancel": 2, "abandon": 2,
        "lose": 4, "retry": 8, "say": 2, "put": 1, "get": 1,
    },
    "awaiting": {
        "resolve": 9, "acquire": 6, "request": 5, "append": 2, "send": 5, "time_passes": 6,
        "interrupt": 1, "settle": 1, "beat": 1, "release": 1, "close": 1, "take": 1, "edit": 1,
        "cancel": 1, "abandon": 1, "say": 1, "get": 1,
    },
}  # fmt: skip
WITHOUT_RUN = {
    "acquire": 16, "resolve": 3, "settle": 2, "interrupt": 1, "append": 1, "beat": 1,
    "time_passes": 1, "close": 1, "send": 4, "edit": 1, "cancel": 1, "abandon": 1,
}  # fmt: skip
AFTER_CLOSE = {"settle": 4, "send": 2, "claim": 1, "resolve": 1, "append": 1, "cancel": 1,
               "say": 2, "get": 1}  # fmt: skip
LONGEST = 3
"""Turns that a walk takes before its thread may be closed."""


class Walk(Recovering):
    """A random walk over everything that can be done to one thread."""

    # One rule, not one for each command: Hypothesis switches rules off at random, and a walk
    # without one of a dozen would hardly ever come to the end of a call.
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        model = self.model
        if self.rarely():
            likely: Mapping[str, int] = dict.fromkeys(COMMANDS, 1)
        elif model.closed:
            likely = AFTER_CLOSE
        elif model.turn_state == "open" and model.run is None:
            likely = WITHOUT_RUN
        else:
            likely = WHILE[model.turn_state]
        kinds = [kind for kind, much in likely.items() for _ in range(self.weight(kind, much))]
        if model.turn < LONGEST:
            kinds = [kind for kind in kinds if kind != "close"] or kinds
        getattr(self, data.draw(st.sampled_from(kinds)))(data.draw)

    # ------------------------------------------------------------ the person

    def send(self, draw: Draw) -> None:
        words, key, busy = draw(drawn.words), draw(drawn.keys), draw(drawn.busy)
        supersede = draw(mostly if self.rarely() else seldom)
        urgent, coalesce = draw(seldom), draw(seldom)
        receipt = self.both(
            lambda: self.stage.owner.send_message(
                thread_id=self.stage.thread_id,
                text=words,
                key=key,
                supersede_approvals=supersede,
                when_busy=busy,
                priority="next" if urgent else "normal",
                coalesce=coalesce,
            ),
            lambda: self.model.send(
                words, key, supersede=supersede, busy=busy, urgent=urgent, coalesce=coalesce
            ),
        )
        if receipt is None:
            return
        said, duplicate = cast("tuple[Said, bool]", self.expected)
        found = (receipt.state, receipt.turn, receipt.first_seq, receipt.last_seq)
        assert found == (said.state, said.turn, said.first, said.last)
        assert receipt.duplicate == duplicate
        answer = receipt.answer and (
            receipt.answer.text,
            receipt.answer.reason,
            receipt.answer.code,
        )
        assert answer == (self.model.answer(said) if duplicate else None)
        if not duplicate:
            self.ids.append(receipt.input_id)

    def message(self, draw: Draw) -> tuple[int, str]:
        """Answer the number and the id of a message: mostly one that waits, if one does."""
        waiting = [at for at, said in enumerate(self.model.messages) if said.state == "queued"]
        aim = draw(mostly) and bool(waiting)
        among = waiting if aim else list(range(len(self.ids) + 1))
        which = among[draw(drawn.picks) % len(among)]
        return which, self.ids[which] if which < len(self.ids) else "nobody's"

    def edit(self, draw: Draw) -> None:
        (which, input_id), words = self.message(draw), draw(drawn.words)
        view = self.both(
            lambda: self.stage.owner.edit_input(
                thread_id=self.stage.thread_id, input_id=input_id, text=words
            ),
            lambda: self.model.edit(which, words),
        )
        if view is not None:
            said = cast("Said", self.expected)
            assert (view.text, view.state, view.position) == (said.text, "queued", said.position)

    def cancel(self, draw: Draw) -> None:
        which, input_id = self.message(draw)
        view = self.both(
            lambda: self.stage.owner.cancel_input(
                thread_id=self.stage.thread_id, input_id=input_id
            ),
            lambda: self.model.cancel(which),
        )
        if view is not None:
            assert (view.text, view.state) == (None, "cancelled")

    def interrupt(self, draw: Draw) -> None:
        answer = self.both(
            lambda: self.stage.owner.interrupt_turn(thread_id=self.stage.thread_id),
            self.model.interrupt,
        )
        if answer is not None:
            assert answer.ended == self.expected

    def close(self, draw: Draw) -> None:
        self.both(
            lambda: self.stage.owner.close_thread(thread_id=self.stage.thread_id),
            self.model.close,
        )

    def resolve(self, draw: Draw) -> None:
        call = self.choose("resolve", draw(drawn.picks), aim=draw(mostly))
        who, approved = draw(drawn.people), draw(mostly)
        current, right_version = draw(mostly), draw(mostly)
        known = self.model.calls.get(call)
        right = self.digests.get((call, known.ask_seq if known else 0), {}).get(who, NO_DIGEST)
        older = [said[who] for key, said in self.digests.items() if key[0] == call and who in said]
        digest = right if current else (older or [NO_DIGEST])[0]
        version = VERSION if right_version else "v2"
        decision = self.both(
            lambda: self.stage.person(who).resolve_approval(
                thread_id=self.stage.thread_id,
                call_id=call,
                approved=approved,
                digest=digest,
                version=version if approved else None,
            ),
            lambda: self.model.resolve(
                who,
                call,
                approved=approved,
                right_digest=digest == right,
                right_version=right_version,
            ),
        )
        if decision is not None:
            assert (decision.seq, decision.state.value, decision.missing) == self.expected

    # ------------------------------------------------------------ the lease

    def acquire(self, draw: Draw) -> None:
        name, stale = self.holder(draw), draw(st.sampled_from((5_000, 15_000, 3_600_000)))
        fence = self.fence(draw) if draw(seldom) else None
        lease = self.both(
            lambda: self.stage.bot.acquire_run(
                thread_id=self.stage.thread_id, run_id=name, fence=fence, stale_after=stale / 1000
            ),
            lambda: self.model.acquire(name, fence, stale),
        )
        if lease is not None:
            assert isinstance(self.expected, tuple)
            *wanted, until = self.expected
            assert [lease.fence, lease.took_over] == wanted
            assert lease.lease_until == moment(until)

    def beat(self, draw: Draw) -> None:
        name, fence = self.holder(draw), self.fence(draw)
        beat = self.both(
            lambda: self.stage.bot.beat_run(
                thread_id=self.stage.thread_id, run_id=name, fence=fence
            ),
            lambda: self.model.beat(name, fence),
        )
        if beat is not None:
            assert isinstance(self.expected, tuple)
            stop, until = self.expected
            assert (beat.interrupt_requested, beat.lease_until) == (stop, moment(until))

    def release(self, draw: Draw) -> None:
        name, fence = self.holder(draw), self.fence(draw)
        released = self.both(
            lambda: self.stage.bot.release_run(
                thread_id=self.stage.thread_id, run_id=name, fence=fence
            ),
            lambda: self.model.release(name, fence),
        )
        assert released == self.expected

    def take(self, draw: Draw) -> None:
        name, fence = self.holder(draw), self.fence(draw)
        taken = self.both(
            lambda: self.stage.bot.take_inputs(
                thread_id=self.stage.thread_id, run_id=name, fence=fence
            ),
            lambda: self.model.take(name, fence),
        )
        if taken is not None:
            before, after, stop = cast("tuple[int, int, bool]", self.expected)
            assert [event.seq for event in taken.events] == list(range(before + 1, after + 1))
            assert taken.interrupt_requested == stop

    def abandon(self, draw: Draw) -> None:
        fence = self.fence(draw) if draw(st.booleans()) else None
        turn = max(1, self.model.turn + draw(drawn.fences)) if draw(st.booleans()) else None
        told = self.both(
            lambda: self.stage.bot.abandon_turn(
                thread_id=self.stage.thread_id, reason="gone", fence=fence, turn=turn
            ),
            lambda: self.model.abandon(fence, turn),
        )
        if told is not None:
            assert (told.turn, told.seq) == self.expected

    def lose(self, draw: Draw) -> None:
        """Give the lease up and take it again, so that nobody can tell of what ran."""
        self.release(draw)
        self.acquire(draw)

    # ------------------------------------------------------------ the run's events

    def append(self, draw: Draw) -> None:
        events = [self.event(fields) for fields in draw(drawn.events)]
        self._append(draw, events)

    def propose_and_ask(self, draw: Draw) -> None:
        """What a run does most of all, so that walks come far."""
        call = f"c{len(self.model.calls) + 1}"
        events = [Event("tool-input", call, repeatable=True), self.asking(call, 0, draw(asks()))]
        if draw(st.booleans()):
            events.append(Event("turn-finish", reason="awaiting-approval"))
        self._append(draw, events)

    def _append(self, draw: Draw, events: list[Event]) -> None:
        name, fence, which = self.holder(draw), self.fence(draw), draw(drawn.numbers)
        last = self.model.batch.number if self.model.batch else 0
        number = {"none": None, "next": last + 1, "gap": last + 2}.get(which, last or None)
        if which == "same":
            events = self.given or events
        usage = draw(drawn.used)
        appended = self.both(
            lambda: self.stage.bot.append_events(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                events=[drawn.concrete(self.stage, event) for event in events],
                batch=number,
                usage=None if usage is None else {"input": drawn.figure(usage)},
            ),
            lambda: self.model.append(name, fence, events, number, usage),
        )
        if appended is None:
            return
        assert isinstance(self.expected, tuple)
        first, last, stop = self.expected
        assert [event.seq for event in appended.events] == list(range(first, last + 1))
        assert appended.duplicate == (stop is None)
        assert stop is None or appended.interrupt_requested == stop
        if number is not None:
            self.given = events
        for event in appended.events:
            if event.type == "approval-request":
                said = {slot.approver: slot.digest for slot in event.requests}
                self.digests[event.call_id, event.seq] = said

    def event(self, fields: Drawn) -> Event:
        kind, pick, tool_input, reason, ask, reissue, same, aim = fields
        if kind == "approval-request":
            call = self.choose("again" if reissue else kind, pick, aim=aim)
            return self.asking(call, tool_input, ask, reissue=reissue, same=same)
        if kind in (*PLAIN, "turn-start", "turn-error"):
            return Event(kind)
        if kind == "turn-finish":
            return Event(kind, reason=reason)
        if kind == "tool-input" and pick:
            name = f"c{len(self.model.calls) + 1}"
            return Event(kind, name, tool_input, repeatable=not reissue)
        call = self.choose(kind, pick, aim=aim)
        if kind == "tool-input":
            return Event(kind, call, tool_input, repeatable=not reissue)
        return Event(kind, call)

    def asking(
        self, call: str, tool_input: int, ask: Wanted, *, reissue: bool = False, same: bool = False
    ) -> Event:
        """Make a request: a new one, or what was asked last of all."""
        if not same or self.asked is None:
            people, required, wait = ask
            self.nonces += 1
            expires = self.model.now + wait
            self.asked = Ask(people, required, expires, tool_input, f"n{self.nonces}")
        return Event("approval-request", call, ask=self.asked, reissue=reissue)

    # ------------------------------------------------------------ the run's calls

    def request(self, draw: Draw) -> None:
        reissue = draw(mostly if self.model.turn_state == "awaiting" else seldom)
        call = self.choose("again" if reissue else "approval-request", draw(drawn.picks))
        name, fence = self.holder(draw), self.fence(draw)
        people, required, wait = draw(asks())
        self.nonces += 1
        wanted = Ask(people, required, self.model.now + wait, 0, f"m{self.nonces}")
        request = self.both(
            lambda: self.stage.bot.request_approval(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                call_id=call,
                operation=OPERATION,
                version=VERSION,
                expires_in=wait / 1000,
                approvers=people,
                required=required,
                reissue=reissue,
            ),
            lambda: self.model.request(name, fence, call, wanted, reissue=reissue),
        )
        if request is not None:
            assert request.seq == self.expected
            said = {slot.approver: slot.digest for slot in request.requests}
            self.digests[call, request.seq] = said

    def claim(self, draw: Draw) -> None:
        call = self.choose("settle" if draw(seldom) else "claim", draw(drawn.picks))
        value, attempt = draw(drawn.inputs), draw(drawn.attempts)
        name, fence = self.holder(draw), self.fence(draw)
        claim = self.both(
            lambda: self.stage.bot.claim_execution(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                call_id=call,
                operation=OPERATION,
                version=VERSION,
                input=INPUTS[value],
                attempt=attempt,
            ),
            lambda: self.model.claim(name, fence, call, value, attempt),
        )
        if claim is not None:
            assert (claim.claimed_fence, claim.duplicate) == self.expected

    def settle(self, draw: Draw) -> None:
        call = self.choose("settle", draw(drawn.picks), aim=draw(mostly))
        mine, kind = draw(mostly), draw(drawn.late)
        known = self.model.calls.get(call)
        fence = (known.fence if known and mine else None) or self.model.fence + 1

        def settle() -> Settled:
            thread, ops = self.stage.thread_id, self.stage.bot
            if kind == "tool-error":
                return ops.settle_execution(
                    thread_id=thread, call_id=call, claimed_fence=fence, error=drawn.FAILED
                )
            return ops.settle_execution(
                thread_id=thread, call_id=call, claimed_fence=fence, output={"ok": True}
            )

        settled = self.both(settle, lambda: self.model.settle(call, fence, kind))
        if settled is not None:
            assert (settled.state.value, settled.seq, settled.duplicate) == self.expected

    def time_passes(self, draw: Draw) -> None:
        seconds = draw(drawn.seconds)
        self.stage.hands.advance(seconds)
        self.model.now += seconds * 1000

    # ------------------------------------------------------------ what both must look like

    @invariant()
    def the_record_is_the_models(self) -> None:
        look(self.stage, self.model, self.checked, self.ids)
        self.checked = len(self.model.log)

    def teardown(self) -> None:
        for name, call in self.model.calls.items():
            assert self.stage.call(name).result == call.result, name
        assert list(self.stage.assistant.doctor(thread_id=self.stage.thread_id)) == []
        # An ended walk must not be among the threads that another walk finds runnable.
        self.stage.owner.close_thread(thread_id=self.stage.thread_id)
