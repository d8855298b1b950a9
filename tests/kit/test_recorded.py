"""The server of recorded traffic, with the recordings of real providers where they are at hand."""

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from engine_assistant.testing.recorded import Exchange, RecordedServer, read_recording

DATA = Path(__file__).parents[3] / "shared" / "data" / "model-streams"
FILES = sorted(DATA.glob("*.json"))


def exchange(path: str, body: str, status: int = 200) -> Exchange:
    return Exchange(path=path, request={}, status=status, content_type="text/plain", body=body)


def ask(server: RecordedServer, path: str, body: str = "{}") -> tuple[int, str | None, bytes]:
    client = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    try:
        client.request("POST", path, body.encode())
        answer = client.getresponse()
        return answer.status, answer.headers["content-type"], answer.read()
    finally:
        client.close()


@pytest.mark.guarantee("G-KIT-08")
@pytest.mark.skipif(not FILES, reason=f"no recordings at {DATA}")
def test_recorded_answers_come_byte_for_byte() -> None:
    for file in FILES:
        raw = json.loads(file.read_bytes())
        with RecordedServer(read_recording(file)) as server:
            for one in raw:
                told = ask(server, one["path"], json.dumps(one["request"]))
                assert told == (one["status"], one["content_type"], one["body"].encode())
            assert server.left == 0
        assert [received.json() for received in server.requests] == [one["request"] for one in raw]


@pytest.mark.guarantee("G-KIT-08")
def test_each_path_has_its_own_order_and_a_query_does_not_count() -> None:
    recorded = [exchange("/a?x=1", "a1"), exchange("/b", "b1", 429), exchange("/a", "a\r\n2\0é")]
    with RecordedServer(recorded) as server:
        assert ask(server, "/b")[:2] == (429, "text/plain")
        assert ask(server, "/a")[2] == b"a1"
        assert server.left == 1
        assert ask(server, "/a?y=2")[2] == "a\r\n2\0é".encode()
        assert [(one.path, one.query) for one in server.requests] == [
            ("/b", ""),
            ("/a", ""),
            ("/a", "y=2"),
        ]


@pytest.mark.guarantee("G-KIT-08")
def test_what_was_not_recorded_is_never_made_up() -> None:
    with RecordedServer([exchange("/a", "a1")]) as server:
        assert ask(server, "/c")[0] == 404
        assert ask(server, "/a")[0] == 200
        status, _, body = ask(server, "/a")
        assert (status, json.loads(body)["error"]["message"]) == (410, "nothing is left for /a")


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "recording.json"
    file.write_text('[{"path": "/a", "request": {}, "status": 200, "body": "a"}]')
    with pytest.raises(ValidationError, match="content_type"):
        read_recording(file)
