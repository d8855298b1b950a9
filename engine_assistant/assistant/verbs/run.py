"""What a system principal does: holds the lease, writes the assistant's side, executes."""

from collections.abc import Mapping, Sequence

from engine_assistant.assistant.given import ABSENT, Absent, given
from engine_assistant.assistant.verbs.base import Verbs
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ToolFailure
from engine_assistant.model.events import Known
from engine_assistant.model.usage import Usage
from engine_assistant.model.views import (
    Appended,
    Beat,
    Claim,
    File,
    Lease,
    Request,
    Settled,
)
from engine_assistant.operations import approvals, calls, files, runs
from engine_assistant.operations import events as log

__all__ = ["RunVerbs"]


class RunVerbs(Verbs):
    """What a system principal does: holds the lease, writes the assistant's side, executes."""

    def acquire_run(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int | None = None,
        stale_after: float = 15.0,
    ) -> Lease:
        """Take the lease of a thread whose turn is not idle. The fence rises.

        Args:
            thread_id: the thread.
            run_id: the host's name for this process or attempt.
            fence: the fence that this run holds: then it is a renewal, and the fence stays.
            stale_after: seconds without a write or beat after which it may be replaced, 0.01 to
                3,600.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`, `no_turn_open`, `run_in_progress`, `run_fenced`.
        """
        return self._run(
            runs.ACQUIRE_RUN,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            stale_after=stale_after,
        )

    def beat_run(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> Beat:
        """Renew the lease, and hear whether the person asked the run to stop.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`, `run_fenced`.
        """
        return self._run(runs.BEAT_RUN, thread_id=thread_id, run_id=run_id, fence=fence)

    def release_run(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> bool:
        """Give the lease up before the turn rests. Return whether this run held it.

        Raises:
            NotFound: there is no such thread.
        """
        return (
            self._run(runs.RELEASE_RUN, thread_id=thread_id, run_id=run_id, fence=fence)
        ).released

    def append_events(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        events: Sequence[Known | Mapping[str, object]],
        batch: int | None = None,
        usage: Usage | Mapping[str, object] | None = None,
    ) -> Appended:
        """Write the assistant's side: every event of the batch, or none. Renews the lease.

        Args:
            thread_id: the thread.
            run_id: the run that holds the lease.
            fence: the fence of its lease.
            events: 1 to 256 run events, as models or as dicts of the same shape.
            batch: 1, 2, 3 … under this fence: a batch given again answers its first result.
            usage: everything that the run has used up so far, in place of what was kept before.

        Raises:
            NotFound: there is no such thread.
            ValidationFailed: also for an unknown type of event, or one that claims to be late.
            Conflict: `thread_closed`, `run_fenced`, `batch_gap`, `key_reused`, `no_turn_open`,
                `not_a_run_event`; of a call `call_state`, `approval_required`, `approval_denied`,
                `execution_not_claimed`, `call_closed`; of a request also `digest_mismatch`,
                `approval_expired`; of a turn-finish `approval_pending`, `no_approval_pending`.
        """
        return self._run(
            log.APPEND_EVENTS,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            events=events,
            batch=batch,
            usage=usage,
        )

    def request_approval(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        call_id: str,
        operation: str,
        version: str,
        expires_in: float,
        approvers: Sequence[str] | None = None,
        required: int = 1,
        reissue: bool = False,
        why: str | None = None,
    ) -> Request:
        """Ask people whether a call may run. The engine copies its input and mints the digests.

        Args:
            thread_id: the thread.
            run_id: the run that holds the lease.
            fence: the fence of its lease.
            call_id: a call that was proposed.
            operation: what would run, in the host's words.
            version: which version of it, see `tool_version`.
            expires_in: seconds until nobody can approve or claim any more, up to 366 days.
            approvers: who may decide, 1 to 20 people; the thread's owner by default.
            required: how many of them must approve. One denial denies.
            reissue: ask again; the approvals before it are superseded.
            why: why it is asked (again), at most 2 KiB.

        Raises:
            NotFound: there is no such thread.
            ValidationFailed: also for approvers named twice, or fewer than required.
            Conflict: `thread_closed`, `run_fenced`, `no_turn_open`, `call_state`.
        """
        return self._run(
            approvals.REQUEST_APPROVAL,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            call_id=call_id,
            operation=operation,
            version=version,
            expires_in=expires_in,
            approvers=approvers,
            required=required,
            reissue=reissue,
            why=why,
        )

    def claim_execution(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        call_id: str,
        operation: str,
        version: str,
        input: JsonValue,
        attempt: int | None = None,
    ) -> Claim:
        """Take the one right to execute an approved call. Run the tool only when this returns.

        Args:
            thread_id: the thread.
            run_id: the run that holds the lease.
            fence: the fence of its lease.
            call_id: the call.
            operation: what is about to run.
            version: the version that is about to run.
            input: the input that it is about to run with.
            attempt: a number for this try: the same try given again answers its first result.

        Raises:
            NotFound: no such thread or call.
            Conflict: `thread_closed`, `run_fenced`, `call_state`, `approval_required`,
                `approval_denied`, `approval_expired`, `call_closed`, `already_executed`,
                `digest_mismatch`, `key_reused`.
        """
        return self._run(
            calls.CLAIM_EXECUTION,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            call_id=call_id,
            operation=operation,
            version=version,
            input=input,
            attempt=attempt,
        )

    def settle_execution(
        self,
        *,
        thread_id: str,
        call_id: str,
        claimed_fence: int,
        output: JsonValue | Absent = ABSENT,
        error: ToolFailure | Mapping[str, str] | None = None,
    ) -> Settled:
        """Bring the late result of an `executing` or `unknown` call, once. Needs no lease.

        Args:
            thread_id: the thread.
            call_id: the call.
            claimed_fence: the fence under which it ran.
            output: what the tool returned (also None), or
            error: how it failed: `code` and `message`.

        Raises:
            NotFound: no such thread or call.
            Conflict: `run_fenced` (it did not run under this fence), `call_state` (it is in
                another state, or has another result).
        """
        return self._run(
            calls.SETTLE_EXECUTION,
            **given(
                thread_id=thread_id,
                call_id=call_id,
                claimed_fence=claimed_fence,
                output=output,
                error=error,
                absent=ABSENT,
            ),
        )

    def register_file(
        self,
        *,
        thread_id: str,
        filename: str,
        content_type: str,
        size: int,
        sha256: str,
    ) -> File:
        """Note a file whose bytes the host has stored, so that a message can name it.

        Args:
            thread_id: the thread it is for.
            filename: at most 1 KiB.
            content_type: at most 128 bytes.
            size: in bytes.
            sha256: 64 lowercase hex digits.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`.
        """
        return self._run(
            files.REGISTER_FILE,
            thread_id=thread_id,
            filename=filename,
            content_type=content_type,
            size=size,
            sha256=sha256,
        )
