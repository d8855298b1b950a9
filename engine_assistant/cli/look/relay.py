"""`relay`: hand milestones to standard output or to a URL. An example of `drain_outbox`."""

import json as json_module
import sys
import time
import urllib.request
from collections.abc import Callable
from urllib.parse import quote, urlsplit

from engine_assistant import ValidationFailed
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import looked_at
from engine_assistant.cli.screen import Screen
from engine_assistant.model.service import Milestone

__all__ = ["relay"]

_PATIENCE = 10.0


def relay(screen: Screen, url: str, *, to: str, once: bool, every: float) -> ExitCode:
    """Drain the outbox until it is empty (`once`), or for ever.

    Raises:
        OSError: standard output takes nothing any more.
    """
    printer = _Printer()
    handler = _handler(to, printer)
    failed = False
    with looked_at(url) as assistant:
        while True:
            drained = assistant.drain_outbox(handler)
            if printer.lost is not None:
                raise printer.lost
            for failure in drained.failures:
                screen.error(
                    f"{failure.thread_id}: milestone {failure.n} was not taken"
                    f" ({failure.error}, try {failure.attempts})"
                )
            failed = failed or bool(drained.failures)
            if drained.handed_out:
                continue
            if once:
                return ExitCode.FAILED if failed else ExitCode.GOOD
            time.sleep(every)


class _Printer:
    """Writes milestones to standard output, and remembers when it took nothing any more."""

    def __init__(self) -> None:
        self.lost: OSError | None = None

    def __call__(self, milestone: Milestone) -> None:
        try:
            sys.stdout.write(_text(milestone) + "\n")
            sys.stdout.flush()
        except OSError as error:
            self.lost = error
            raise


def _handler(to: str, printer: _Printer) -> Callable[[Milestone], None]:
    """Return what takes a milestone.

    Raises:
        ValidationFailed: it is neither `stdout` nor an http(s) URL.
    """
    if to == "stdout":
        return printer
    try:
        address = urlsplit(to)
    except ValueError:
        address = urlsplit("")
    if address.scheme not in ("http", "https"):
        raise ValidationFailed("--to must be stdout, or an http or https URL.", path="to")
    return lambda milestone: _post(to, milestone)


def _text(milestone: Milestone) -> str:
    return json_module.dumps(milestone.model_dump(mode="json"))


def _post(url: str, milestone: Milestone) -> None:
    """POST one milestone as JSON. The id lets the receiver drop what it has seen before."""
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        url,
        data=_text(milestone).encode(),
        method="POST",
        headers={
            "Content-Type": "application/json",
            "Idempotency-Key": quote(f"{milestone.tenant_id}/{milestone.thread_id}/{milestone.n}"),
        },
    )
    with urllib.request.urlopen(request, timeout=_PATIENCE):  # noqa: S310
        pass
