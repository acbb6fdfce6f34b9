"""The rules of a prompt, held against foreign text with an effort that has an end.

An engine may answer with a text for which an expression backtracks, or a schema branches, without
an end. What takes longer than an honest answer ever does is nobody's to judge.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from specdeck.engine.divergence.expansion import measure_expansion

STEPS = 50_000
"""Keywords of a schema that one answer is held against; thousands are many."""
SCHEMA_STEPS = 200_000
"""The same of what a schema itself is held against: 30 for each schema within it."""
SECONDS = 1.0
"""For all expressions together that one answer is held against."""
PROMPT_STEPS, PROMPT_SECONDS = 4 * STEPS, 2 * SECONDS
"""The same for all answers to one prompt."""
CALL_STEPS = 20
"""What a call of a tool costs beside the keywords that it is held against."""
_MOST_ITEMS = 10_000
"""Of an expression written out; each takes 260 bytes once it is compiled."""
_REMEMBERED = 64
"""Compiled expressions."""
_WIDTH = 50
"""Values or names of a keyword, all of which may be looked through, that count as a step."""
_STEP = 200
"""Characters of an error, or of an item that is compared with others, that count as a step."""

Search = Callable[[str], bool]
Keyword = Callable[[Any, Any, Any, Any], Iterator[Any]]
"""A keyword of a schema: validator, its value, the instance and the schema, to the errors."""


class TooMuch(Exception):
    """An answer that takes longer to judge than honest ones do."""


@dataclass(slots=True)
class _Effort:
    """What is left of it."""

    steps: int = STEPS
    seconds: float = field(default=SECONDS)

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise TooMuch

    @contextmanager
    def spend_time(self) -> Iterator[float]:
        """Spends the time within, and yields how much of it there is."""
        if self.seconds <= 0:
            raise TooMuch
        began = time.monotonic()
        try:
            yield self.seconds
        finally:
            self.seconds -= time.monotonic() - began


_left: ContextVar[_Effort] = ContextVar("specdeck_effort")


@contextmanager
def bounded_effort(steps: int = STEPS, seconds: float = SECONDS) -> Iterator[None]:
    """Has what is judged within raise TooMuch once it has taken too much of steps or seconds.

    Within another one it has at most what is left of that, and takes it from there.
    """
    outer = _left.get(None)
    if outer is not None:
        steps, seconds = max(0, min(steps, outer.steps)), min(seconds, outer.seconds)
    own = _Effort(steps, seconds)
    before = _left.set(own)
    try:
        yield
    finally:
        _left.reset(before)
        if outer is not None:
            outer.steps -= steps - own.steps
            outer.seconds -= seconds - own.seconds


def spend_steps(steps: int) -> None:
    """Takes so many steps from the effort; raises TooMuch where they are not left."""
    _left.get().spend(steps)


def accept_by_pieces(accept: Callable[[str], bool], text: str, size: int) -> bool:
    """Whether `accept` takes all of `text`, given in pieces of `size` characters one after another.

    For what cannot be stopped once it is called: the effort is looked at between the pieces.
    """
    for start in range(0, len(text), size):
        with _left.get().spend_time():
            if not accept(text[start : start + size]):
                return False
    return True


def compile_pattern(text: object, *, whole: bool = False) -> Search | None:
    """Whether a text has a match, or is one as a `whole`, within a bounded effort.

    None for what is no expression, for one that is too long written out, and without the
    package `regex`, which comes with vLLM: Python's own cannot be stopped.
    """
    if isinstance(text, str) and measure_expansion(text, most=_MOST_ITEMS) > _MOST_ITEMS:
        return None
    try:
        regex: Any = import_module("regex")
        found = regex.compile(text, cache_pattern=False)
    except (ImportError, TypeError, ValueError, RecursionError):
        return None
    except regex.error:
        return None  # vLLM's backends know expressions that Python does not
    match = found.fullmatch if whole else found.search

    def search(subject: str) -> bool:
        try:
            with _left.get().spend_time() as seconds:
                return match(subject, timeout=max(seconds, 1e-3)) is not None
        except TimeoutError:
            raise TooMuch from None

    return search


@cache
def bound_validator(kind: Any) -> Any:
    """The class `kind` of jsonschema with its keywords counted and its expressions bounded."""
    from jsonschema import validators

    counted = {name: _count(rule) for name, rule in kind.VALIDATORS.items()}
    own = {
        "pattern": _count(_check_pattern),
        "patternProperties": _count(_check_pattern_properties),
        "additionalProperties": _count(_check_additional_properties),
        "uniqueItems": _count(_check_unique),
        "unevaluatedProperties": _refuse_patterns(counted.get("unevaluatedProperties")),
    }
    return validators.extend(kind, {**counted, **{n: r for n, r in own.items() if n in counted}})


def is_schema(kind: Any, value: Any) -> bool:
    """Whether `value` is a schema of the class `kind` of jsonschema.

    Its own `check_schema` compares what has to differ by pairs, and has no end in sight.
    """
    judge = bound_validator(kind)(without_dialects(kind.META_SCHEMA), registry=_read_dialects())
    with bounded_effort(SCHEMA_STEPS):
        return all(False for _ in judge.iter_errors(value))


@cache
def _read_dialects() -> Any:
    """What schemas themselves are held against, by its address."""
    from referencing import Registry
    from referencing.jsonschema import specification_with

    known: Any = import_module("jsonschema_specifications").REGISTRY
    contents = {address: known[address].contents for address in known}
    resources = (
        (address, specification_with(one["$schema"]).create_resource(without_dialects(one)))
        for address, one in contents.items()
    )
    # Crawled, or jsonschema's own would be found by their anchors.
    return Registry().with_resources(resources).crawl()


def without_dialects(schema: Any) -> Any:
    """`schema` without what names its dialect: jsonschema would judge it, and what refers to it,
    by that one's own class.

    >>> without_dialects({"$schema": "http://d", "properties": {"$schema": {"type": "string"}}})
    {'properties': {'$schema': {'type': 'string'}}}
    """
    if isinstance(schema, list):
        return [without_dialects(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {n: one for n, one in schema.items() if n != "$schema" or not isinstance(one, str)}
    return {name: without_dialects(one) for name, one in kept.items()}


def _count(rule: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        effort = _left.get()
        effort.spend(1 + (len(value) // _WIDTH if isinstance(value, list | dict) else 0))
        for error in rule(validator, value, instance, schema) or ():
            effort.spend(len(error.message) // _STEP)  # jsonschema has all of the instance in it
            yield error

    return check


def _find_search(text: str) -> Search:
    with _left.get().spend_time():
        found = _compile_once(text)
    if found is None:
        raise TooMuch  # nobody's to judge either
    return found


@lru_cache(_REMEMBERED)
def _compile_once(text: str) -> Search | None:
    return compile_pattern(text)


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _check_pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _find_search(value)(instance):
        yield _error(f"{instance!r} does not match {value!r}")


def _check_pattern_properties(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, wanted in value.items():
            for name, one in instance.items():
                if _find_search(pattern)(name):
                    yield from validator.descend(one, wanted, path=name, schema_path=pattern)


def _check_additional_properties(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    named = schema.get("properties", {})
    searches = [_find_search(pattern) for pattern in schema.get("patternProperties", {})]
    extra = [n for n in instance if n not in named and not any(find(n) for find in searches)]
    if validator.is_type(value, "object"):
        for name in extra:
            yield from validator.descend(instance[name], value, path=name)
    elif not value and extra:
        names, were = ", ".join(map(repr, extra[:3])), "was" if len(extra) == 1 else "were"
        yield _error(f"Additional properties are not allowed ({names} {were} unexpected)")


def _check_unique(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not value or not validator.is_type(instance, "array"):
        return
    seen: set[str] = set()
    for item in instance:
        spelling = _spell(item)
        if spelling in seen:
            yield _error(f"{instance!r} has non-unique elements")
            return
        seen.add(spelling)


def _spell(value: Any) -> str:
    """The same text for what JSON Schema takes to be equal, and for nothing else.

    >>> with bounded_effort():
    ...     _spell({"b": 1.0, "a": [True, -0.0, "1"]})
    '{"a":[true,0,"1"],"b":1}'
    """
    if isinstance(value, list):
        spelling = f"[{','.join(map(_spell, value))}]"
    elif isinstance(value, dict):
        pairs = (f"{json.dumps(name)}:{_spell(value[name])}" for name in sorted(value))
        spelling = f"{{{','.join(pairs)}}}"
    else:
        whole = isinstance(value, float) and value.is_integer()
        spelling = json.dumps(int(value) if whole else value)
    _left.get().spend(1 + len(spelling) // _STEP)
    return spelling


def _refuse_patterns(rule: Keyword | None) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if "patternProperties" in str(schema):
            raise TooMuch  # jsonschema matches these itself
        yield from (rule(validator, value, instance, schema) or ()) if rule else ()

    return check
