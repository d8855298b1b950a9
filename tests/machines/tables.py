"""What the design promises about calls, written out a second time by hand.

Nothing here is imported from the engine. A cell is a state (the call is in it afterwards), a
reason (it is refused, and nothing has changed), or `-` (it stays as it is).
"""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, Mapping[str, str]]
"""Row -> column -> cell."""


def read_table(text: str) -> Table:
    """Read a table drawn with bars: its first line names the columns."""
    head, *lines = [[cell.strip() for cell in line.split("|")] for line in text.split("\n") if line]
    return {row: dict(zip(head[1:], cells, strict=True)) for row, *cells in lines}


OPEN = ("running", "awaiting-approval", "approved", "executing")
"""What a call must still leave."""

ENDINGS = read_table("""
ended by           | running   | awaiting-approval | approved              | executing
done               | cancelled | approval_pending  | cancelled             | unknown
another reason     | cancelled | cancelled         | cancelled             | unknown
awaiting-approval  | unknown   | -                 | execution_not_claimed | unknown
the fence rises    | unknown   | -                 | -                     | unknown
interrupt or close | unknown   | cancelled         | cancelled             | unknown
superseded         | unknown   | superseded        | superseded            | unknown
""")

REFUSED = read_table("""
state             | tool-input | request    | reissue    | tool-output           | tool-error        | late       | resolve          | claim             | decided anew
running           | -          | -          | call_state | -                     | -                 | call_state | call_state       | call_state        | call_state
awaiting-approval | call_state | call_state | -          | approval_required     | approval_required | call_state | -                | approval_required | call_state
approved          | call_state | call_state | -          | execution_not_claimed | -                 | call_state | already_resolved | -                 | call_state
denied            | call_state | call_state | call_state | approval_denied       | approval_denied   | call_state | already_resolved | approval_denied   | call_state
executing         | call_state | call_state | call_state | -                     | -                 | -          | already_resolved | already_executed  | call_state
done              | call_state | call_state | call_state | call_state            | call_state        | call_state | already_resolved | already_executed  | call_state
failed            | call_state | call_state | call_state | call_state            | call_state        | call_state | already_resolved | already_executed  | call_state
expired           | call_state | call_state | call_state | call_closed           | call_closed       | call_state | approval_expired | approval_expired  | call_state
superseded        | call_state | call_state | call_state | call_closed           | call_closed       | call_state | call_closed      | call_closed       | call_state
cancelled         | call_state | call_state | call_state | call_closed           | call_closed       | call_state | call_closed      | call_closed       | call_state
unknown           | call_state | call_state | call_state | call_state            | call_state        | -          | already_resolved | already_executed  | -
""")  # noqa: E501 - a table is read across

# What the door answers. `not_found`: no row is there for this person to decide. `run_fenced`:
# the call was never claimed, so no fence could be right.
PROPOSED = read_table("""
situation                    | tool-input | another tool | request           | reissue           | tool-output           | tool-error
running                      | running    | call_state   | awaiting-approval | call_state        | done                  | failed
awaiting                     | call_state | call_state   | call_state        | awaiting-approval | approval_required     | approval_required
awaiting, lapsed             | call_state | call_state   | call_state        | awaiting-approval | approval_required     | approval_required
approved                     | call_state | call_state   | call_state        | awaiting-approval | execution_not_claimed | failed
approved, lapsed             | call_state | call_state   | call_state        | awaiting-approval | execution_not_claimed | expired
denied                       | call_state | call_state   | call_state        | call_state        | approval_denied       | approval_denied
executing                    | call_state | call_state   | call_state        | call_state        | done                  | failed
done, ungated                | call_state | call_state   | call_state        | call_state        | call_state            | call_state
done, gated                  | call_state | call_state   | call_state        | call_state        | call_state            | call_state
failed, ungated              | call_state | call_state   | call_state        | call_state        | call_state            | call_state
failed, gated                | call_state | call_state   | call_state        | call_state        | call_state            | call_state
failed, unclaimed            | call_state | call_state   | call_state        | call_state        | call_state            | call_state
expired, unanswered          | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
expired, unclaimed           | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
superseded                   | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
cancelled, ungated           | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
cancelled, awaiting          | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
cancelled, approved          | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
unknown, ungated             | call_state | call_state   | call_state        | call_state        | call_state            | call_state
unknown, gated               | call_state | call_state   | call_state        | call_state        | call_state            | call_state
unknown, ungated, repeatable | call_state | call_state   | call_state        | call_state        | call_state            | call_state
unknown, gated, repeatable   | call_state | call_state   | call_state        | call_state        | call_state            | call_state
unknown, lapsed              | call_state | call_state   | call_state        | call_state        | call_state            | call_state
running, again               | running    | call_state   | awaiting-approval | call_state        | done                  | failed
executing, again             | call_state | call_state   | call_state        | call_state        | done                  | failed
done, resolved               | call_state | call_state   | call_state        | call_state        | call_state            | call_state
cancelled, resolved          | call_state | call_state   | call_state        | call_state        | call_closed           | call_closed
""")  # noqa: E501 - a table is read across

# Columns `output` and `error` are the late results that settle_execution brings; `happened` and
# `did not` are what the owner says.
DECIDED = read_table("""
situation                    | approve          | deny             | claim             | output     | error      | retry            | happened   | did not
running                      | not_found        | not_found        | call_state        | call_state | call_state | call_state       | call_state | call_state
awaiting                     | approved         | denied           | approval_required | run_fenced | run_fenced | call_state       | call_state | call_state
awaiting, lapsed             | approval_expired | denied           | approval_required | run_fenced | run_fenced | call_state       | call_state | call_state
approved                     | already_resolved | already_resolved | executing         | run_fenced | run_fenced | call_state       | call_state | call_state
approved, lapsed             | already_resolved | already_resolved | approval_expired  | run_fenced | run_fenced | call_state       | call_state | call_state
denied                       | already_resolved | already_resolved | approval_denied   | run_fenced | run_fenced | call_state       | call_state | call_state
executing                    | already_resolved | already_resolved | already_executed  | done       | failed     | call_state       | call_state | call_state
done, ungated                | not_found        | not_found        | call_state        | call_state | call_state | call_state       | call_state | call_state
done, gated                  | already_resolved | already_resolved | already_executed  | call_state | call_state | call_state       | call_state | call_state
failed, ungated              | not_found        | not_found        | call_state        | call_state | call_state | call_state       | call_state | call_state
failed, gated                | already_resolved | already_resolved | already_executed  | call_state | call_state | call_state       | call_state | call_state
failed, unclaimed            | already_resolved | already_resolved | already_executed  | run_fenced | run_fenced | call_state       | call_state | call_state
expired, unanswered          | approval_expired | approval_expired | approval_expired  | run_fenced | run_fenced | call_state       | call_state | call_state
expired, unclaimed           | approval_expired | approval_expired | approval_expired  | run_fenced | run_fenced | call_state       | call_state | call_state
superseded                   | call_closed      | call_closed      | call_closed       | run_fenced | run_fenced | call_state       | call_state | call_state
cancelled, ungated           | not_found        | not_found        | call_state        | call_state | call_state | call_state       | call_state | call_state
cancelled, awaiting          | call_closed      | call_closed      | call_closed       | run_fenced | run_fenced | call_state       | call_state | call_state
cancelled, approved          | call_closed      | call_closed      | call_closed       | run_fenced | run_fenced | call_state       | call_state | call_state
unknown, ungated             | not_found        | not_found        | call_state        | done       | failed     | not_repeatable   | done       | cancelled
unknown, gated               | already_resolved | already_resolved | already_executed  | done       | failed     | not_repeatable   | done       | cancelled
unknown, ungated, repeatable | not_found        | not_found        | call_state        | done       | failed     | running          | done       | cancelled
unknown, gated, repeatable   | already_resolved | already_resolved | already_executed  | done       | failed     | executing        | done       | cancelled
unknown, lapsed              | already_resolved | already_resolved | already_executed  | done       | failed     | approval_expired | done       | cancelled
running, again               | not_found        | not_found        | call_state        | call_state | call_state | call_state       | call_state | call_state
executing, again             | already_resolved | already_resolved | already_executed  | done       | failed     | call_state       | call_state | call_state
done, resolved               | already_resolved | already_resolved | already_executed  | call_state | call_state | call_state       | call_state | call_state
cancelled, resolved          | not_found        | not_found        | call_state        | call_state | call_state | call_state       | call_state | call_state
""")  # noqa: E501 - a table is read across

APPROVALS = {
    "running": {},
    "awaiting": {"usr_alice": "pending"},
    "awaiting, lapsed": {"usr_alice": "pending"},
    "approved": {"usr_alice": "approved"},
    "approved, lapsed": {"usr_alice": "approved"},
    "denied": {"usr_alice": "denied"},
    "executing": {"usr_alice": "approved"},
    "done, ungated": {},
    "done, gated": {"usr_alice": "approved"},
    "failed, ungated": {},
    "failed, gated": {"usr_alice": "approved"},
    "failed, unclaimed": {"usr_alice": "approved"},
    "expired, unanswered": {"usr_alice": "expired"},
    "expired, unclaimed": {"usr_alice": "approved"},
    "superseded": {"usr_alice": "superseded"},
    "cancelled, ungated": {},
    "cancelled, awaiting": {"usr_alice": "cancelled"},
    "cancelled, approved": {"usr_alice": "approved"},
    "unknown, ungated": {},
    "unknown, gated": {"usr_alice": "approved"},
    "unknown, ungated, repeatable": {},
    "unknown, gated, repeatable": {"usr_alice": "approved"},
    "unknown, lapsed": {"usr_alice": "approved"},
    "running, again": {},
    "executing, again": {"usr_alice": "approved"},
    "done, resolved": {"usr_alice": "approved"},
    "cancelled, resolved": {},
}
"""How the approvals of a call stand in each situation."""
