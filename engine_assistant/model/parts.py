"""What stands inside an event: values of their own that more than one kind of row shares."""

from engine_assistant.model.fields import Id, Label, Natural, Sha256, Title
from engine_assistant.model.record import Part

__all__ = ["ApprovalSlot", "FilePart"]


class FilePart(Part):
    """A file as it stood when the message was sent."""

    id: Id
    filename: Title
    content_type: Label
    size: Natural
    sha256: Sha256


class ApprovalSlot(Part):
    """One person who may decide, with a nonce and digest of their own."""

    approver: Id
    nonce: Id
    digest: Sha256
