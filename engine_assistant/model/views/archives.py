"""What bringing archives in answers."""

from collections.abc import Mapping

from engine_assistant.model.views import View

__all__ = ["Imported", "Refused"]


class Imported(View):
    """A thread that is there now. `created`: this import brought it; else it was there before."""

    thread_id: str
    events: int
    created: bool


class Refused(View):
    """A thread of several that was not brought in. `error` is the refusal in its plain form."""

    thread_id: str
    error: Mapping[str, object]
