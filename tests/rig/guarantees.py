"""Which guarantee is pinned by which test: read from the document and from the marks."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

LINE = re.compile(r"^- \*\*(G-[A-Z0-9]+-\d+)\*\*", re.MULTILINE)
Test = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def promised(document: str) -> list[str]:
    """Answer the numbers in the order of the document; raise if one stands twice."""
    numbers = LINE.findall(document)
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise ValueError(f"numbered twice: {twice}")
    return numbers


def pinned(folder: Path) -> Mapping[str, list[str]]:
    """Answer, for each number that a mark names, the places that name it.

    Raises:
        ValueError: a mark that stands on no test, or whose numbers are not plain strings.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        marks = {id(mark): mark for mark in _marks(tree)}
        for root in _roots(tree) if path.name.startswith("test_") else ():
            for mark in _marks(root):
                if marks.pop(id(mark), None) is None:
                    continue
                place = f"{path.relative_to(folder)}:{mark.lineno}"
                for number in _numbers(mark, place):
                    places[number].append(place)
        for stray in marks.values():
            raise ValueError(f"{path}:{stray.lineno}: a guarantee mark that stands on no test")
    return places


def _marks(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="guarantee", value=ast.Attribute(attr="mark"))):
                yield node


def _roots(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk what pytest reads marks from: decorators of tests, and `pytestmark`."""
    for node in ast.walk(tree):
        if isinstance(node, Test) and _is_test(node):
            yield from node.decorator_list
        if isinstance(node, ast.Module | ast.ClassDef):
            for line in node.body:
                match line:
                    case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                        yield value


def _is_test(node: Test) -> bool:
    if node.name.startswith("Test") and isinstance(node, ast.ClassDef):
        return True
    # Hypothesis' state machines are collected by their TestCase; their class carries no mark.
    return node.name.startswith("test_")


def _numbers(mark: ast.Call, place: str) -> Iterator[str]:
    if not mark.args or mark.keywords:
        raise ValueError(f"{place}: a guarantee mark names its numbers, and nothing else")
    for word in mark.args:
        match word:
            case ast.Constant(value=str(number)):
                yield number
            case _:
                raise ValueError(f"{place}: a guarantee's number is written out, never computed")
