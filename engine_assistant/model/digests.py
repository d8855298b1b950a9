"""The digests: what a person approved, as 64 hexadecimal digits.

Every digest is SHA-256 over canonical JSON. That is RFC 8785 (sorted keys, one spelling of every
string and number), extended in one point: a Python ``int`` beyond ±(2^53 - 1) is written in exact
decimal. RFC 8785 sees numbers as doubles, where two 19-digit ids that differ in the last digit are
one number; models emit such ids, and they must not share an approval.

Arrays that are digested begin with a tag that names their meaning and its version, so that a digest
of one kind can never pass for one of another. ``docs/digest.md`` is the page for whoever verifies.
"""

import hashlib
import json.encoder
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine_assistant.model.codec import JsonRefused, check_json

__all__ = [
    "APPROVAL_TAG",
    "REQUEST_TAG",
    "TOOL_TAG",
    "ApprovalBinding",
    "approval_digest",
    "approval_digests",
    "approval_json",
    "arguments_digest",
    "canonical_json",
    "request_digest",
    "tool_version",
]

APPROVAL_TAG: Final = "engine-assistant/approval/1"
REQUEST_TAG: Final = "engine-assistant/request/1"
TOOL_TAG: Final = "engine-assistant/tool/1"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_BOUND: Final = (
    "version",
    "approver",
    "tenant",
    "thread",
    "step",
    "call",
    "operation",
    "expires_at",
    "nonce",
)

# ECMAScript writes a double without an exponent from 1e-6 up to 1e21.
_PLAIN_ABOVE: Final = -7
_PLAIN_BELOW: Final = 21

_quote = json.encoder.encode_basestring


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ApprovalBinding:
    """The ten values that one approval binds together.

    Two bindings are the same when their digests are; Python's own equality is switched off because
    it takes ``1`` and ``True`` for the same input. The input and the nonce stay out of ``repr``, so
    that a traceback does not print them. The input is not copied: digest it before it may change.
    """

    version: str
    """What would run: the deployed version, or better the ``tool_version`` of the tool."""
    approver: str
    tenant: str
    thread: str
    step: str
    call: str
    operation: str
    expires_at: str
    """``YYYY-MM-DDTHH:MM:SS.mmmZ``, bound as the text it is."""
    nonce: str = field(repr=False)
    input: object = field(repr=False)
    """Any JSON value: what the operation would be given."""


def approval_digest(binding: ApprovalBinding) -> str:
    """Digest one approval: 64 lowercase hexadecimal digits.

    Raises ``JsonRefused`` (a ``ValidationFailed``) when a bound value is not a string or the input
    is not JSON that can be kept; its path names the value.
    """
    return hashlib.sha256(approval_json(binding)).hexdigest()


def approval_digests(bindings: Iterable[ApprovalBinding]) -> list[str]:
    """Digest the approvals of one request, in their order.

    The same digests as one by one; an input that follows itself (the same object) is written once,
    which counts where many people approve one large input. Raises ``JsonRefused``.
    """
    digests: list[str] = []
    last: tuple[object, str] | None = None
    for binding in bindings:
        if last is None or last[0] is not binding.input:
            last = (binding.input, _input_text(binding))
        text = _approval_text(binding, last[1])
        digests.append(hashlib.sha256(text.encode()).hexdigest())
    return digests


def approval_json(binding: ApprovalBinding) -> bytes:
    """Return the bytes that ``approval_digest`` hashes: what an auditor needs to repeat it."""
    return _approval_text(binding, _input_text(binding)).encode()


def _input_text(binding: ApprovalBinding) -> str:
    _check_part(binding.input, "input")
    return _text(binding.input)


def _approval_text(binding: ApprovalBinding, input_text: str) -> str:
    texts = [_quote(APPROVAL_TAG)]
    for name in _BOUND:
        value: object = getattr(binding, name)
        texts.append(_quote(_string(value, name)))
    return f"[{','.join(texts)},{input_text}]"


def arguments_digest(input: object) -> str:
    """Digest an input alone, for tokens and display.

    It has no tag, because it is pinned as plain SHA-256 over RFC 8785 of the arguments; for the
    same reason it proves nothing about who approved what, and never replaces ``approval_digest``.
    Raises ``JsonRefused``.
    """
    return hashlib.sha256(canonical_json(input)).hexdigest()


def request_digest(required: int, approval_digests: Sequence[str]) -> str:
    """Digest one request: how many must approve, and the digest of each person's approval.

    The digests come in the order of their approvers. Raises ``JsonRefused`` unless ``required`` is
    an integer of at least 1 and each digest is 64 lowercase hexadecimal digits.
    """
    if type(required) is not int or required < 1:
        raise JsonRefused("not an integer of at least 1", "/required")
    for index, digest in enumerate(approval_digests):
        if type(digest) is not str or not _DIGEST.fullmatch(digest):
            raise JsonRefused("not a digest", f"/approval_digests/{index}")
    array = [REQUEST_TAG, required, list(approval_digests)]
    return hashlib.sha256(canonical_json(array)).hexdigest()


def tool_version(name: str, schema: object, effect: str) -> str:
    """Digest what a tool is: its name, the JSON schema of its input, its declared effect.

    Used as a binding's ``version`` it changes exactly when the tool does, so that a deploy which
    leaves the tool alone does not void what people are about to approve. The array is
    ``["engine-assistant/tool/1", name, schema, effect]``. Raises ``JsonRefused``.
    """
    _check_part(schema, "schema")
    array = [TOOL_TAG, _string(name, "name"), schema, _string(effect, "effect")]
    return hashlib.sha256(_text(array).encode()).hexdigest()


def canonical_json(value: object) -> bytes:
    """Write a value in canonical form, UTF-8. Raises ``JsonRefused`` as ``check_json`` does."""
    check_json(value)
    return _text(value).encode()


def _string(value: object, name: str) -> str:
    if type(value) is not str:
        raise JsonRefused("not a string", f"/{name}")
    _check_part(value, name)
    return value


def _check_part(value: object, name: str) -> None:
    """Check one value of an array by itself: the array is ours and takes none of its depth."""
    try:
        check_json(value)
    except JsonRefused as refusal:
        raise JsonRefused(refusal.reason, f"/{name}{refusal.path}") from None


def _text(value: object) -> str:
    """Write a checked value; its depth is bounded, so the recursion is too."""
    if type(value) is str:
        return _quote(value)
    if type(value) is dict:
        members = [f"{_quote(key)}:{_text(value[key])}" for key in _in_order(value)]
        return "{" + ",".join(members) + "}"
    if type(value) is list:
        return "[" + ",".join([_text(item) for item in value]) + "]"
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return _double(value)
    if type(value) is int:
        return _integer(value)
    raise JsonRefused(f"not JSON (the Python type {type(value).__name__})")


def _in_order(keys: Iterable[str]) -> list[str]:
    # RFC 8785 sorts by UTF-16 code units, where U+1F600 comes before U+FB33.
    return sorted(keys, key=_utf16)


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # A process that lets Python write fewer digits than we allow.
        raise JsonRefused("an integer of too many digits") from None


def _double(value: float) -> str:
    """Write a double as ECMAScript does, which is what RFC 8785 asks for.

    ``repr`` gives the same shortest digits and differs only in where it starts to use an exponent:
    below 1e-4 and from 1e16 on, where ECMAScript waits until 1e-6 and 1e21.
    """
    if value == 0:
        return "0"  # Negative zero too.
    mantissa, _, power = repr(value).partition("e")
    if not power:
        return mantissa.removesuffix(".0")
    sign = "-" if value < 0 else ""
    digits = mantissa.lstrip("-").replace(".", "")
    exponent = int(power)
    if 0 < exponent < _PLAIN_BELOW:
        return sign + digits.ljust(exponent + 1, "0")
    if _PLAIN_ABOVE < exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+d}"
