"""With what a call is refused in each state that a trigger may not leave.

The other half of the call machine: where `machines` has an arrow, this table is silent, and where
it has none, this table says why. A test holds the two against each other.
"""

from collections.abc import Mapping
from typing import Final

from engine_assistant.model.errors import ConflictReason as Refused
from engine_assistant.model.machines import CallState, Trigger

__all__ = ["REFUSALS"]

_C, _T = CallState, Trigger


def _refuse(reason: Refused, *states: CallState) -> Mapping[CallState, Refused]:
    return dict.fromkeys(states, reason)


_ENDED = _refuse(Refused.CALL_CLOSED, _C.EXPIRED, _C.SUPERSEDED, _C.CANCELLED)
# Whether an `unknown` call happened only settle_execution may say.
_NO_RESULT = {
    **_refuse(Refused.CALL_STATE, _C.DONE, _C.FAILED, _C.UNKNOWN),
    **_refuse(Refused.APPROVAL_REQUIRED, _C.AWAITING),
    **_refuse(Refused.APPROVAL_DENIED, _C.DENIED),
    **_ENDED,
}
_LAPSED = {_C.EXPIRED: Refused.APPROVAL_EXPIRED}
_DECIDED = (_C.APPROVED, _C.DENIED, _C.EXECUTING, _C.DONE, _C.FAILED, _C.UNKNOWN)
_CLAIMED = (_C.EXECUTING, _C.DONE, _C.FAILED, _C.UNKNOWN)


def _elsewhere(*admitted: CallState) -> Mapping[CallState, Refused]:
    return _refuse(Refused.CALL_STATE, *(s for s in CallState if s not in admitted))


REFUSALS: Final[Mapping[Trigger, Mapping[CallState, Refused]]] = {
    _T.TOOL_INPUT: _elsewhere(_C.RUNNING),
    _T.REQUEST: _elsewhere(_C.RUNNING),
    _T.REISSUE: _elsewhere(_C.AWAITING, _C.APPROVED),
    _T.OUTPUT: {**_NO_RESULT, _C.APPROVED: Refused.EXECUTION_NOT_CLAIMED},
    _T.ERROR: _NO_RESULT,
    _T.LATE_OUTPUT: _elsewhere(_C.EXECUTING, _C.UNKNOWN),
    _T.LATE_ERROR: _elsewhere(_C.EXECUTING, _C.UNKNOWN),
    _T.RETRY: _elsewhere(_C.UNKNOWN),
    _T.RECLAIM: _elsewhere(_C.UNKNOWN),
    _T.HAPPENED: _elsewhere(_C.UNKNOWN),
    _T.DID_NOT_HAPPEN: _elsewhere(_C.UNKNOWN),
    _T.RESOLVE: {
        **_refuse(Refused.CALL_STATE, _C.RUNNING),
        **_refuse(Refused.ALREADY_RESOLVED, *_DECIDED),
        **_ENDED,
        **_LAPSED,
    },
    _T.CLAIM: {
        **_refuse(Refused.CALL_STATE, _C.RUNNING),
        **_refuse(Refused.APPROVAL_REQUIRED, _C.AWAITING),
        **_refuse(Refused.APPROVAL_DENIED, _C.DENIED),
        **_refuse(Refused.ALREADY_EXECUTED, *_CLAIMED),
        **_ENDED,
        **_LAPSED,
    },
}
