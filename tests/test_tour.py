"""Whatever docs/tour.md calls by name is there, under that name."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.rig.pages import ROOT

TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`([a-z_0-9/]+(?:\.py|\.sql|/))(?::([A-Za-z_.]+))?`")
ROOMS = (ROOT, ROOT / "engine_assistant")


def _found(place: str) -> Path | None:
    return next((room / place for room in ROOMS if (room / place).exists()), None)


@cache
def _names(path: Path) -> frozenset[str]:
    """Answer what a module defines: functions, classes, their methods, and constants."""
    return frozenset(_defined(ast.parse(path.read_text(encoding="utf-8"))))


def _defined(tree: ast.Module | ast.ClassDef) -> list[str]:
    names = []
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.append(name)
            case ast.ClassDef(name=name):
                names += [name, *(f"{name}.{inner}" for inner in _defined(node))]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
            case ast.Assign(targets=targets):
                names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def test_the_places_are_there() -> None:
    places = [place for place, _ in PLACE.findall(TOUR)]
    assert len(places) > 50
    assert [place for place in places if _found(place) is None] == []


def test_the_names_are_there() -> None:
    wrong = []
    for place, name in PLACE.findall(TOUR):
        path = _found(place)
        if name and path is not None and name not in _names(path):
            wrong.append(f"{place}:{name}")
    assert wrong == []


def test_the_conditional_update_is_that_of_the_store() -> None:
    """The tour spells one statement; the store makes it of the rows and these guards."""
    from engine_assistant.model.rows import CallRow
    from engine_assistant.store import writes

    guards = [name for name in writes._GUARDS if name in CallRow.__dataclass_fields__]
    (where,) = re.findall(r"WHERE (tenant_id.*?)\n +```", TOUR, re.DOTALL)
    assert re.findall(r"(\w+) = …", where) == list(CallRow.KEY)
    assert re.findall(r"(\w+) IS NOT DISTINCT FROM", where) == guards
