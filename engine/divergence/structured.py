"""Whether an answer keeps to the structure that its prompt requires, and where it does not.

A prompt may require a JSON schema, a regular expression, a choice, a grammar or the call of a tool.
The engine enforces that token by token, drafted ones included; where it does so for some only, the
answer breaks the rule. One that `--max-tokens` cut short is judged as far as it goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from specdeck.engine.divergence.answers import Answer, Call
from specdeck.engine.divergence.effort import (
    CALL_STEPS,
    PROMPT_SECONDS,
    PROMPT_STEPS,
    TooMuch,
    accept_by_pieces,
    bound_validator,
    bounded_effort,
    compile_pattern,
    is_schema,
    spend_steps,
    without_dialects,
)
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.protocol.codec import NotJson, loads
from specdeck.engine.text import oneline

_LONGEST = 200
"""Characters of a reason, and of a place."""
_PIECE = 16
"""Characters that xgrammar is given at a time; for some grammars each costs more than the last."""
_LONGEST_GRAMMAR = 50_000
"""Characters; to compile one takes xgrammar seconds from there on, and the square of them."""
_CUT = "length"
"""The engine's reason for an end that the answer has not chosen."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Where an answer breaks a rule of its prompt."""

    path: str
    """`$` is the whole answer."""
    rule: str
    """`json`, `regex`, `choice`, `grammar`, `tool`, or the keyword of a schema, such as `type`."""
    why: str
    """In words; empty where answers are private."""
    enforced: bool = True
    """Whether the engine had to enforce the rule: it does not for a call that a model may make, nor
    for what a grammar leaves out of a schema."""

    def line(self) -> str:
        """One line for the operator.

        >>> Violation("limit", "type", "'a' is not of type 'integer'").line()
        "limit: 'a' is not of type 'integer'"
        """
        return f"{self.path}: {self.why or self.rule}"


@dataclass(frozen=True, slots=True)
class Validity:
    """The answers of both arms to one prompt that requires a structure."""

    serving: Violation | None
    """None where they keep to it, as far as they go."""
    reference: Violation | None

    @property
    def broken(self) -> Violation | None:
        """What the serving arm's answers break and the reference's do not.

        A reference that breaks what no engine enforces says nothing of what it does.
        """
        if self.reference is None:
            return self.serving
        alone = self.serving is not None and self.serving.enforced and not self.reference.enforced
        return self.serving if alone else None


_Judge = Callable[[Answer], Violation | None]


def judge_validity(
    prompt: Prompt, serving: Sequence[Answer], reference: Sequence[Answer]
) -> Validity | None:
    """Where the arms' answers break the prompt's rules; None where it has none to judge by."""
    judge = _find_judge(prompt.body)
    if judge is None:
        return None
    with bounded_effort(PROMPT_STEPS, PROMPT_SECONDS):
        return Validity(_first(map(judge, serving)), _first(map(judge, reference)))


def _first(found: Iterable[Violation | None]) -> Violation | None:
    """The first one that the engine had to prevent, else the first."""
    every = [one for one in found if one is not None]
    return next((one for one in every if one.enforced), every[0] if every else None)


def is_constrained(prompt: Prompt) -> bool:
    """Whether the engine lets the model choose among some tokens only."""
    body = prompt.body
    choice = body.get("tool_choice")
    named = choice == "required" or isinstance(choice, dict)
    return named or "response_format" in body or "structured_outputs" in body


def _find_judge(body: Mapping[str, Any]) -> _Judge | None:
    choice, listed = body.get("tool_choice"), body.get("tools")
    if isinstance(listed, list) and listed and choice != "none":
        required = choice == "required" or isinstance(choice, dict)
        tools = _find_tools(listed)
        return lambda answer: _judge_calls(answer, tools, required=required)
    asked = _find_rule(body)
    if asked is None:
        return None
    rule, value = asked
    judge = _RULES.get(rule)
    return None if judge is None else judge(value)


def _find_rule(body: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The rule's kind and what it says, in vLLM's words for `structured_outputs`."""
    given = body.get("structured_outputs")
    if isinstance(given, dict):
        return next(((k, v) for k, v in given.items() if k in _RULES and v is not None), None)
    wanted = body.get("response_format")
    if not isinstance(wanted, dict):
        return None
    if wanted.get("type") == "json_object":
        return "json_object", True
    schema = wanted.get("json_schema")
    if wanted.get("type") == "json_schema" and isinstance(schema, dict):
        return "json", schema.get("schema", {})
    return None


def _judge_json(schema: Any) -> _Judge | None:
    if isinstance(schema, str):
        try:
            schema = loads(schema)
        except NotJson:
            return None
    judged = _Schema(schema)
    return lambda answer: _check_text(answer.text, judged, cut=answer.finish == _CUT, required=True)


def _judge_object(value: Any) -> _Judge | None:
    return _judge_json({"type": "object"}) if value else None


def _judge_pattern(value: Any) -> _Judge | None:
    matches = compile_pattern(value, whole=True)
    if matches is None:
        return None

    def judge(answer: Answer) -> Violation | None:
        try:
            with bounded_effort():
                if answer.finish == _CUT or matches(answer.text):
                    return None
        except TooMuch:
            return None
        why = f"{_quote(answer.text)} does not match {_quote(value)}"
        return Violation("$", "regex", why, enforced=_is_refused(make_grammar(), answer.text))

    # Dialects differ: a dot of xgrammar's takes the end of a line as well.
    make_grammar = cache(lambda: _compile_grammar("compile_regex", value))
    return judge


def _judge_choice(value: Any) -> _Judge | None:
    if not isinstance(value, list):
        return None

    def judge(answer: Answer) -> Violation | None:
        text = answer.text
        begun = answer.finish == _CUT and any(str(one).startswith(text) for one in value)
        if begun or text in value:
            return None
        return Violation("$", "choice", f"{_quote(text)} is none of the choices")

    return judge


def _judge_grammar(value: Any) -> _Judge | None:
    """With xgrammar, which comes with vLLM; without it a grammar is nobody's to judge.

    Nor is one that takes it minutes and gigabytes.
    """
    compiled = _compile_grammar("compile_grammar", str(value))
    if compiled is None:
        return None

    def judge(answer: Answer) -> Violation | None:
        try:
            accepted, ended = _accept(compiled, answer.text)
        except TooMuch:
            return None
        if ended or (accepted and answer.finish == _CUT):
            return None
        broken = "ends too early" if accepted else "is not of the grammar"
        return Violation("$", "grammar", f"{_quote(answer.text)} {broken}")

    return judge


def _compile_grammar(how: str, rule: str) -> Any:
    """What xgrammar, vLLM's default, makes of a rule by its compiler's method `how`.

    None without it, where the rule is of another dialect, and where it would take too long.
    """
    if len(rule) > _LONGEST_GRAMMAR:
        return None
    try:
        import xgrammar
    except ImportError:
        return None
    # Of a vocabulary of characters: what is accepted depends on no tokenizer.
    names = [chr(code) for code in range(128)]
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(names))
    try:
        return getattr(compiler, how)(rule)
    except (RuntimeError, *_NO_SCHEMA):
        return None


def _accept(grammar: Any, text: str) -> tuple[bool, bool]:
    """Whether a grammar lets `text` through, and whether it may end so; may raise TooMuch."""
    import xgrammar

    matcher = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)
    with bounded_effort():
        accepted = accept_by_pieces(matcher.accept_string, text, _PIECE)
    return accepted, accepted and matcher.is_terminated()


def _is_refused(grammar: Any, text: str) -> bool:
    """Whether a grammar lets no such whole answer through; false where nobody can tell."""
    try:
        return grammar is not None and not _accept(grammar, text)[1]
    except TooMuch:
        return False


_RULES: Mapping[str, Callable[[Any], _Judge | None]] = {
    "json": _judge_json,
    "json_object": _judge_object,
    "regex": _judge_pattern,
    "choice": _judge_choice,
    "grammar": _judge_grammar,
}


def _find_tools(tools: Sequence[Any]) -> dict[str, _Schema]:
    """The schema of each tool's arguments, by its name."""
    functions = (tool.get("function") for tool in tools if isinstance(tool, dict))
    return {
        str(one.get("name")): _Schema(one.get("parameters", {}))
        for one in functions
        if isinstance(one, dict)
    }


def _judge_calls(
    answer: Answer, tools: Mapping[str, _Schema], *, required: bool
) -> Violation | None:
    cut = answer.finish == _CUT
    if required and not answer.calls and not cut:
        return Violation("$", "tool", "no tool is called")
    try:
        with bounded_effort():  # one for all calls: of small ones an answer holds thousands
            for number, call in enumerate(answer.calls):
                spend_steps(CALL_STEPS)
                prefix = f"calls[{number}]" if len(answer.calls) > 1 else ""
                last = cut and number == len(answer.calls) - 1
                found = _judge_call(call, tools, prefix, cut=last, required=required)
                if found is not None:
                    return replace(found, enforced=required and found.enforced)
    except TooMuch:
        pass
    return None


def _judge_call(
    call: Call, tools: Mapping[str, _Schema], prefix: str, *, cut: bool, required: bool
) -> Violation | None:
    if call.name not in tools:
        path = f"{prefix}.name" if prefix else "name"
        return None if cut else Violation(path, "tool", f"there is no tool {_quote(call.name)}")
    found = _check_text(call.arguments, tools[call.name], cut=cut, required=required)
    if found is None or not prefix:
        return found
    path = f"{prefix}.arguments" if found.path == "$" else f"{prefix}.{found.path}"
    return replace(found, path=path)


def check_json(text: str, schema: Any, *, cut: bool = False) -> Violation | None:
    """Where a JSON text breaks its schema; one that was `cut` short is judged by its form alone.

    >>> check_json('{"limit": "x"}', {"properties": {"limit": {"type": "integer"}}}).line()
    "limit: 'x' is not of type 'integer'"
    >>> check_json('{"limit": 5', {}, cut=True), check_json('{"limit": 5', {}).rule
    (None, 'json')
    """
    return _check_text(text, _Schema(schema), cut=cut, required=True)


def _check_text(text: str, schema: _Schema, *, cut: bool, required: bool) -> Violation | None:
    """Where a text breaks the schema. A grammar of that is made only where one was `required`: it
    may take seconds."""
    try:
        value = loads(text)
    except NotJson as error:
        if _is_json(text) or (cut and _is_beginning(text)):
            return None  # of a number, or a depth, that is too much for us alone
        return Violation("$", "json", f"{_quote(text)} is not JSON: {error}")
    if cut and isinstance(value, int | float) and not isinstance(value, bool):
        return None  # its last digits may be missing
    found = schema.check(value)
    return found and replace(found, enforced=required and schema.forbids(text))


def _is_json(text: str) -> bool:
    """Whether a text is JSON by its form alone, however much of it there is.

    >>> [_is_json(text) for text in ("1" * 99, "[1e999]", "[" * 9999, "[NaN]", "[1")]
    [True, True, True, False, False]
    """
    try:
        _DECODER.decode(text)
    except RecursionError:
        return True  # nobody can tell
    except ValueError:
        return False
    return True


def _is_beginning(text: str) -> bool:
    """Whether a JSON text may begin so.

    >>> [_is_beginning(text) for text in ('{"a": tr', '["x', "[1.", "[1 2", '{"a" 1', "{}}")]
    [True, True, True, False, False, False]
    >>> _is_beginning("[NaN, 1")
    False
    """
    try:
        _DECODER.decode(text)
    except RecursionError:
        return True
    except json.JSONDecodeError as error:
        before, rest = text[: error.pos].rstrip()[-1:], text[error.pos :]
    except ValueError:  # of a word that is none of JSON's
        return False
    else:
        return True
    if not rest.strip() or _HALF_ESCAPE.fullmatch(rest):
        return True
    if before.isdecimal():
        return _HALF_NUMBER.fullmatch(rest) is not None
    return before in ("", "[", "{", ",", ":") and _HALF_VALUE.fullmatch(rest) is not None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)
_HALF_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{0,3})?")
_HALF_NUMBER = re.compile(r"\.|(\.\d+)?[eE][+-]?")
_HALF_VALUE = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\.)*+\\?' r"|-|t|tr|tru|f|fa|fal|fals|n|nu|nul")


_NO_SCHEMA = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What jsonschema raises where a reference leads to what is no schema, or a dialect is no text."""


class _Schema:
    """A schema, looked at when it is first needed, and once."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Any:
        """What values are held against; None where that is no schema."""
        from jsonschema import validators
        from referencing import Registry

        schema = self._schema
        if not isinstance(schema, dict):
            return None
        try:
            kind = validators.validator_for(schema, default=validators.Draft202012Validator)
            if not is_schema(kind, schema):
                return None
            # Without a registry a reference would be looked for on the network.
            return bound_validator(kind)(without_dialects(schema), registry=Registry())
        except _find_no_schema():
            return None  # the engine has its own view of such a schema

    @cached_property
    def _grammar(self) -> Any:
        """What xgrammar makes of it; None where that is nothing, or not known."""
        try:
            text = json.dumps(self._schema)
        except _NO_SCHEMA:
            return None
        return _compile_grammar("compile_json_schema", text)

    def forbids(self, text: str) -> bool:
        """Whether a grammar made of it lets no such `text` through, a whole answer or a part of
        one: some keywords, and some together, are left out of it. False where nobody can tell."""
        return _is_refused(self._grammar, text.strip())

    def check(self, value: Any) -> Violation | None:
        """Where `value` breaks it; None as well where nobody can tell."""
        from jsonschema import exceptions

        if (validator := self._validator) is None:
            return None
        try:
            with bounded_effort():
                found = exceptions.best_match(validator.iter_errors(value))
        except _find_no_schema():
            return None
        if found is None:
            return None
        why = oneline(str(found.message))[:_LONGEST]
        path = oneline(_format_path(found.absolute_path))[:_LONGEST]
        return Violation(path, str(found.validator), why)


def _find_no_schema() -> tuple[type[BaseException], ...]:
    """What is raised where a schema is none, or takes too long."""
    from jsonschema.exceptions import UnknownType
    from referencing.exceptions import Unresolvable

    return (UnknownType, Unresolvable, TooMuch, *_NO_SCHEMA)


def _format_path(parts: Any) -> str:
    """As the places of structural differences are named.

    >>> _format_path(["filters", 0, "name"]), _format_path([])
    ('filters[0].name', '$')
    """
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else str(part)
    return path or "$"


def _quote(text: str) -> str:
    short = oneline(text)
    return repr(short if len(short) <= 60 else f"{short[:59]}…")
