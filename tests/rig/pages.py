"""The Python of a Markdown page, run as it stands there."""

import re
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from engine_assistant import Assistant

__all__ = ["ROOT", "URL", "run_snippets", "snippets"]

ROOT: Final = Path(__file__).parent.parent.parent
URL: Final = "sqlite:///assistant.db"
"""What a page calls the database. It is run with the URL of a fresh one."""

_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[tuple[int, str]]:
    """Return each snippet with the line that it stands on."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in _BLOCK.finditer(text)]


def run_snippets(page: Path, url: str) -> None:
    """Run a page's snippets in their order, as one program, on a database of their own."""
    names: dict[str, object] = {"__name__": page.stem}
    try:
        for line, text in snippets(page):
            # The line numbers of the page, for the traceback of a snippet that fails.
            code = "\n" * line + text.replace(URL, url)
            exec(compile(code, page.name, "exec"), names)  # noqa: S102 - it is our own page
    finally:
        for found in names.values():
            engine = found.engine if isinstance(found, Assistant) else found
            if isinstance(engine, Engine):
                engine.dispose()
