"""What recovery stands on: runs as a record, private context, calls that nobody can tell of."""

from engine_assistant.assistant.given import ABSENT, Absent, given
from engine_assistant.assistant.verbs.base import Verbs
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import Claim, Page, Settled
from engine_assistant.model.views.runs import ContextSize, ContextView, RunOperation, RunView
from engine_assistant.operations import calls, contexts, runs

__all__ = ["RecoveryVerbs"]


class RecoveryVerbs(Verbs):
    """What recovery stands on: runs as a record, private context, calls that nobody can tell of."""

    def record_operation(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        operation_id: str,
        kind: str,
        phase: str,
        step: str | None = None,
        first_output: bool = False,
    ) -> RunOperation:
        """Say what the run does now, in place of what it said before. Renews the lease.

        Args:
            thread_id: the thread.
            run_id: the run that holds the lease.
            fence: the fence of its lease.
            operation_id: the host's name for it. While it stays, so does the time of its start.
            kind: what it is, in the host's words: `"model"`, `"tool"`.
            phase: how far it is, in the host's words.
            step: the step that it belongs to.
            first_output: it has put something out. The first time is kept.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`, `run_fenced`.
        """
        return self._run(
            runs.RECORD_OPERATION,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            operation_id=operation_id,
            kind=kind,
            phase=phase,
            step=step,
            first_output=first_output,
        )

    def list_runs(
        self,
        *,
        thread_id: str,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunView]:
        """Return the runs of a thread, newest first.

        For the thread's owner, `audit` and `run`.

        Args:
            thread_id: the thread.
            state: only runs in this state: `"running"` is the live one.
            limit: rows of this page, 1 to 1,000.
            cursor: from the page before.

        Raises:
            NotFound: no such thread, or not for this caller.
        """
        return self._run(
            runs.LIST_RUNS, thread_id=thread_id, state=state, limit=limit, cursor=cursor
        )

    def get_run(
        self,
        *,
        thread_id: str,
        fence: int,
    ) -> RunView:
        """Return one run: how it stands or by what it ended, what it used up and did last.

        For the thread's owner, `audit` and `run`.

        Raises:
            NotFound: no such run, or not for this caller.
        """
        return self._run(runs.GET_RUN, thread_id=thread_id, fence=fence)

    def put_context(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        state: str,
    ) -> ContextSize:
        """Keep opaque state of the model's provider, in place of what was kept. Renews the lease.

        It is there for the runs of this turn, while it is open or waits for people, and is gone
        with its end. It is in no read of a person's, no event, no milestone and no error.

        Args:
            thread_id: the thread.
            run_id: the run that holds the lease.
            fence: the fence of its lease.
            state: 1 byte to 1 MiB of text without NUL.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`, `run_fenced`.
        """
        return self._run(
            contexts.PUT_CONTEXT, thread_id=thread_id, run_id=run_id, fence=fence, state=state
        )

    def get_context(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> ContextView:
        """Return the context that is kept for the turn, whichever of its runs put it there.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`, `run_fenced`.
        """
        return self._run(contexts.GET_CONTEXT, thread_id=thread_id, run_id=run_id, fence=fence)

    def retry_call(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        call_id: str,
        operation: str | None = None,
        version: str | None = None,
        input: JsonValue | Absent = ABSENT,
        attempt: int | None = None,
    ) -> Claim:
        """Take the right to run an `unknown` call again. Run the tool only when this returns.

        Only a call that was proposed as `repeatable`. From then on its result counts under this
        fence, and whoever ran it before can settle it no more.

        Args:
            thread_id: the thread.
            run_id: the run that holds the lease.
            fence: the fence of its lease.
            call_id: the call.
            operation: of a gated call, what is about to run, and
            version: the version that is about to run, and
            input: the input that it is about to run with. Of an ungated call none of the three.
            attempt: a number for this try: the same try given again answers its first result.

        Raises:
            NotFound: no such thread or call.
            ValidationFailed: also for a gated call without the three, or an ungated one with them.
            Conflict: `thread_closed`, `run_fenced`, `no_turn_open`, `call_state` (it is not
                `unknown`), `not_repeatable`, `key_reused`; of a gated call `approval_expired`,
                `digest_mismatch`.
        """
        return self._run(
            calls.RETRY_CALL,
            **given(
                thread_id=thread_id,
                run_id=run_id,
                fence=fence,
                call_id=call_id,
                operation=operation,
                version=version,
                input=input,
                attempt=attempt,
                absent=ABSENT,
            ),
        )

    def resolve_unknown(
        self,
        *,
        thread_id: str,
        call_id: str,
        happened: bool,
        output: JsonValue = None,
        reason: str | None = None,
    ) -> Settled:
        """Say, as the thread's owner, what became of an `unknown` call: once, and for good.

        Args:
            thread_id: a thread that the caller owns.
            call_id: the call.
            happened: it did, and the call is `done`; or it did not, and the call is `cancelled`.
            output: what it returned, if it happened.
            reason: how the person knows, at most 2 KiB.

        Raises:
            NotFound: no such call, or not on a thread of the caller's.
            PermissionDenied: a system principal never decides.
            Conflict: `call_state` (it is not `unknown`, or something else is known of it).
        """
        return self._run(
            calls.RESOLVE_UNKNOWN,
            thread_id=thread_id,
            call_id=call_id,
            happened=happened,
            output=output,
            reason=reason,
        )
