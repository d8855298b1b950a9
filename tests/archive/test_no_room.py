"""An archive for which there is no room on its way is refused whole, with a typed error."""

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest
import sqlalchemy as sa

from engine_assistant import Internal
from tests.rig.archives import archive_of, keeper
from tests.rig.record import Record, words


@pytest.fixture
def long_thread(engine: sa.Engine) -> tuple[Record, str]:
    """A thread whose archive is longer than what waits in memory."""
    record = Record(engine)
    story = record.open("long").say("Hi").take()
    story.write(*words(*("said " * 40_000 for _ in range(8))))
    return record, story.rest().thread_id


def _full(*_: object, **__: object) -> BinaryIO:
    """Answer a file that takes no byte."""
    return Path(os.devnull).open("rb")


@pytest.mark.guarantee("G-ARCH-25")
@pytest.mark.parametrize("folder", ["missing", "full"])
def test_no_room_on_the_way(
    long_thread: tuple[Record, str], folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record, thread_id = long_thread
    archive = archive_of(record.assistant, thread_id)
    assert len(archive) > 1024 * 1024
    if folder == "missing":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    else:
        monkeypatch.setattr(tempfile, "TemporaryFile", _full)
    with pytest.raises(Internal) as out:
        next(record.assistant.export_thread(keeper(), thread_id=thread_id))
    with pytest.raises(Internal) as into:
        record.assistant.import_thread(keeper("elsewhere"), [archive])
    for refused in (out.value, into.value):
        assert "TMPDIR" in refused.message
        assert "said" not in str(refused.to_dict())
        assert refused.__context__ is None or refused.__suppress_context__
    assert record.assistant.survey(tenant="elsewhere") == []
    monkeypatch.undo()
    assert record.assistant.import_thread(keeper("elsewhere"), [archive]).created
