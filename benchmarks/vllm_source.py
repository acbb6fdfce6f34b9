"""Reads vLLM's source without importing it: classes, functions, and what they go by.

Names are followed through `from … import …` and classes through their bases, as far as
vLLM's own modules hold them.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

Read = Callable[[str], str | None]
"""The text of a file by its path in the package's parent (`vllm/config/vllm.py`); None: no such."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign

_MOST_HOPS = 8
"""Re-exports that are followed until a name counts as not found."""


@dataclass(frozen=True)
class Found:
    """Where a name is defined."""

    module: str
    node: Definition


class Source:
    """One version of vLLM, as text."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._module = cache(self._parse)

    def find(self, module: str, name: str) -> Found | None:
        """The definition of a name, qualified within its module; a method may be inherited."""
        owner, _, member = name.rpartition(".")
        if not owner:
            return self._find_top(module, name, _MOST_HOPS)
        found = self._find_top(module, owner, _MOST_HOPS)
        if found is None:
            return None
        for each in self._family(found):
            for node in _class(each).body:
                if isinstance(node, Function) and node.name == member:
                    return Found(each.module, node)
        return None

    def members(self, found: Found) -> set[str]:
        """Everything that objects of a class have, what their methods set included."""
        return {name for each in self._family(found) for name in _own_members(_class(each))}

    def meaning(self, found: Found) -> str:
        """A digest of a function's code that comments, its docstring and its place do not move."""
        text, _ = self._module(found.module) or ("", None)
        return digest(text, found.node)

    def _family(self, found: Found) -> Iterator[Found]:
        """A class and its bases, as far as they are vLLM's own."""
        pending, seen = [found], set[tuple[str, str]]()
        while pending:
            each = pending.pop(0)
            node = each.node
            if not isinstance(node, ast.ClassDef) or (each.module, node.name) in seen:
                continue
            seen.add((each.module, node.name))
            yield each
            for base in node.bases:
                plain = base.value if isinstance(base, ast.Subscript) else base
                if isinstance(plain, ast.Name):
                    above = self._find_top(each.module, plain.id, _MOST_HOPS)
                    if above is not None:
                        pending.append(above)

    def _find_top(self, module: str, name: str, hops: int) -> Found | None:
        parsed = self._module(module)
        if parsed is None or not hops:
            return None
        last: Found | None = None
        for node in _statements(parsed[1].body):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        origin = _resolve(module, node, is_package=self._is_package(module))
                        last = self._find_top(origin, alias.name, hops - 1) or last
            elif name in _names(node):
                assert isinstance(node, Definition)
                last = Found(module, node)
        return last

    def _is_package(self, module: str) -> bool:
        return self._read(f"{module.replace('.', '/')}.py") is None

    def _parse(self, module: str) -> tuple[str, ast.Module] | None:
        path = module.replace(".", "/")
        text = self._read(f"{path}.py")
        if text is None:
            text = self._read(f"{path}/__init__.py")
        return None if text is None else (text, ast.parse(text))


def parameters(node: Function) -> list[str]:
    """What a function takes, by name.

    >>> parameters(ast.parse("def f(self, a, *args, b=1, **more): ...").body[0])
    ['self', 'a', 'args', 'b', 'more']
    """
    taken = node.args
    named = [*taken.posonlyargs, *taken.args]
    rest = [each for each in (taken.vararg, *taken.kwonlyargs, taken.kwarg) if each is not None]
    return [each.arg for each in (*named, *rest)]


def mentions(node: ast.AST) -> set[str]:
    """Names, attributes and texts in a definition."""
    found = set[str]()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
    return found


def passes(node: ast.AST, callee: str, keyword: str) -> bool:
    """Whether a definition calls `callee`, by its last name, with `keyword`; '' asks for neither.

    >>> passes(ast.parse("self.drafter.propose(k=1)"), "propose", "k")
    True
    """
    return any(
        isinstance(each, ast.Call)
        and _last_name(each.func) == callee
        and (not keyword or any(given.arg == keyword for given in each.keywords))
        for each in ast.walk(node)
    )


def constant(node: Definition) -> object:
    """The value of an assignment, where it is a plain one."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return value.value if isinstance(value, ast.Constant) else None


def digest(text: str, node: ast.stmt) -> str:
    """A digest of a definition in `text`, by its code alone.

    >>> one, other = "def f():\\n  return 1 # so", "def f():\\n  'Gives 1.'\\n  return 1"
    >>> digest(one, ast.parse(one).body[0]) == digest(other, ast.parse(other).body[0])
    True
    """
    first, last = node.lineno, node.end_lineno or node.lineno
    dropped = set[int]()
    if (
        isinstance(node, Function | ast.ClassDef)
        and ast.get_docstring(node, clean=False) is not None
    ):
        words = node.body[0]
        dropped = set(range(words.lineno, (words.end_lineno or words.lineno) + 1))
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT and first <= row <= last:
            lines[row - 1] = lines[row - 1][:column]
    code = [
        (len(line) - len(line.lstrip()) - node.col_offset, line.strip())
        for number, line in enumerate(lines, 1)
        if first <= number <= last and number not in dropped and line.strip()
    ]
    return hashlib.sha256(repr(code).encode()).hexdigest()[:16]


def _class(found: Found) -> ast.ClassDef:
    assert isinstance(found.node, ast.ClassDef)
    return found.node


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top of a module, those under `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handled = [each for handler in node.handlers for each in handler.body]
            yield from _statements([*node.body, *handled, *node.orelse])


def _names(node: ast.stmt) -> Iterator[str]:
    """What a statement defines."""
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else ()
    single = (node.target,) if isinstance(node, ast.AnnAssign) else ()
    for target in (*targets, *single):
        if isinstance(target, ast.Name):
            yield target.id


def _own_members(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        yield from _names(each)
        if not isinstance(each, Function):
            continue
        for inner in ast.walk(each):
            if not (isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)):
                continue
            if isinstance(inner.value, ast.Name) and inner.value.id == "self":
                yield inner.attr


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _resolve(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    """The module that an import names, absolutely."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = len(parts) - node.level + (1 if is_package else 0)
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])
