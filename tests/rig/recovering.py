"""The steps of a walk that recover: calls tried again or resolved, and private context."""

from __future__ import annotations

from hypothesis import strategies as st

from engine_assistant.assistant.given import ABSENT
from tests.rig import drawn
from tests.rig.drawn import INPUTS, mostly
from tests.rig.states import OPERATION, VERSION
from tests.rig.walker import Draw, Walker


class Recovering(Walker):
    """What a run does after another one was lost, and what the owner says of it."""

    def retry(self, draw: Draw) -> None:
        call = self.choose("retry", draw(drawn.picks), aim=draw(mostly))
        name, fence = self.holder(draw), self.fence(draw)
        known = self.model.calls.get(call)
        gated = (known is not None and known.ask is not None) is draw(mostly)
        value = draw(drawn.inputs) if gated else None
        attempt = draw(drawn.attempts)
        right = self.both(
            lambda: self.stage.bot.retry_call(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                call_id=call,
                operation=None if value is None else OPERATION,
                version=None if value is None else VERSION,
                input=ABSENT if value is None else INPUTS[value],
                attempt=attempt,
            ),
            lambda: self.model.retry(name, fence, call, value, attempt),
        )
        if right is not None:
            assert (right.claimed_fence, right.duplicate) == self.expected

    def say(self, draw: Draw) -> None:
        call = self.choose("say", draw(drawn.picks), aim=draw(mostly))
        happened = draw(st.booleans())
        said = self.both(
            lambda: self.stage.owner.resolve_unknown(
                thread_id=self.stage.thread_id,
                call_id=call,
                happened=happened,
                output={"ok": True} if happened else None,
            ),
            lambda: self.model.say(call, happened=happened),
        )
        if said is not None:
            assert (said.state.value, said.seq, said.duplicate) == self.expected

    def put(self, draw: Draw) -> None:
        name, fence, context = self.holder(draw), self.fence(draw), draw(drawn.contexts)
        kept = self.both(
            lambda: self.stage.bot.put_context(
                thread_id=self.stage.thread_id, run_id=name, fence=fence, state=context
            ),
            lambda: self.model.put(name, fence, context),
        )
        if kept is not None:
            assert kept.bytes == self.expected

    def get(self, draw: Draw) -> None:
        name, fence = self.holder(draw), self.fence(draw)
        kept = self.both(
            lambda: self.stage.bot.get_context(
                thread_id=self.stage.thread_id, run_id=name, fence=fence
            ),
            lambda: self.model.get(name, fence),
        )
        if kept is not None:
            assert kept.state == self.expected
