"""What both arms are asked: prompts from a file or a bundled set, one at a time."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TypeVar

from specdeck.engine.errors import ConfigError, UsageError
from specdeck.engine.files import open_file
from specdeck.engine.fingerprint.digest import canonical

_T = TypeVar("_T")

BUNDLED = ("code", "chat", "tools")
_COMPLETION = frozenset({"id", "prompt", "max_tokens", "response_format", "structured_outputs"})
_CHAT = frozenset(
    {"id", "messages", "tools", "tool_choice", "response_format", "max_tokens"}
    | {"chat_template_kwargs", "structured_outputs"}
)
_TEMPLATE, _MARKS = 4096, 16
"""Tokens that a template adds to a text, and that may stand around given ones."""
MOST = 1_000_000
"""Of what a check counts: prompts, and tokens of an answer."""
_LONGEST = 8_000_000
"""Characters of one line."""
_OWN = 12
"""Bytes by which a prompt is known again: of a million, two are alike once in 10^17 files."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, as far as both arms get the same."""

    number: int
    """From 1."""
    line: int
    """In its file, from 1."""
    body: Mapping[str, Any]

    @property
    def chat(self) -> bool:
        """Whether it is a conversation."""
        return "messages" in self.body

    @property
    def most_tokens(self) -> int:
        """Tokens that it has at most: a byte each, and those of a template."""
        given = self.body.get("prompt")
        if isinstance(given, list):
            return len(given) + _MARKS
        return len(json.dumps(dict(self.body))) + _TEMPLATE

    @property
    def has_tools(self) -> bool:
        """Whether the answer may call tools."""
        return bool(self.body.get("tools"))


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of one file, read anew by every iteration so that none need be kept."""

    path: Path
    count: int
    digest: str
    """Of the prompts that count."""
    copies: frozenset[int] = frozenset()
    """Lines whose prompt stands further up already. They are passed over: what a greedy answer
    says of an engine, the same request says no second time."""

    def __iter__(self) -> Iterator[Prompt]:
        return islice(_pass_over(_read(self.path), self.copies), self.count)

    def find(self, number: int) -> Prompt | None:
        """The prompt of this number; None when the file has no longer so many."""
        return next((prompt for prompt in self if prompt.number == number), None)


def load_prompts(
    source: str | Path, limit: int | None = None, *, proceed: Callable[[], None] | None = None
) -> PromptSet:
    """The first `limit` prompts of a bundled set or a file, all of them looked at once.

    What is the same as one before it counts for none.

    `proceed` is called at each line; what it raises ends this.

    A file named .jsonl holds {"prompt": …} or {"messages": …, "tools": …}, or a prompt as a JSON
    string, a line; any other holds such objects, or plain text with a prompt a line. Raises
    ConfigError with file:line for a line that is no prompt, and for a file without any.
    """
    path = bundled_path(source) if source in BUNDLED else Path(source)
    try:
        stream = path.is_fifo() or path.is_char_device()
    except OSError as error:  # such as a name that is too long
        raise ConfigError(f"{source}: {error.strerror or error}") from None
    if stream:
        remedy = "write it into one: prompts are read more than once, so that none need be kept"
        raise ConfigError(f"{path}: is no file", remedy=remedy)
    count, digest = 0, hashlib.sha256()
    seen: set[bytes] = set()
    copies: set[int] = set()
    for prompt in _read(path, proceed):
        if count == limit:
            break
        body = canonical(prompt.body)
        if (own := hashlib.blake2b(body, digest_size=_OWN).digest()) in seen:
            copies.add(prompt.line)
            continue
        seen.add(own)
        count += 1
        digest.update(body + b"\n")
    if not count:
        raise ConfigError(f"{path}: holds no prompt", remedy="give JSONL, or text with one a line")
    return PromptSet(path, count, digest.hexdigest()[:16], frozenset(copies))


async def load_prompts_aside(
    source: str | Path, limit: int | None = None, *, proceed: Callable[[], None] | None = None
) -> PromptSet:
    """As `load_prompts`, in a thread that a cancellation ends at its next line.

    A million prompts take some ten seconds, in which the event loop hears signals and keys.
    """

    def load(is_left: Callable[[], bool]) -> PromptSet:
        def go_on() -> None:
            if is_left():
                raise asyncio.CancelledError  # nobody waits for it any more
            if proceed is not None:
                proceed()

        return load_prompts(source, limit, proceed=go_on)

    return await _run_aside(load)


async def find_prompt_aside(prompts: PromptSet, number: int) -> Prompt | None:
    """As `PromptSet.find`, in a thread that a cancellation ends at its next prompt."""

    def look(is_left: Callable[[], bool]) -> Prompt | None:
        looked_at = takewhile(lambda _: not is_left(), prompts)
        return next((prompt for prompt in looked_at if prompt.number == number), None)

    return await _run_aside(look)


async def _run_aside(work: Callable[[Callable[[], bool]], _T]) -> _T:
    """What `work` gives, in a thread; it is told whether nobody waits for it any more."""
    left = threading.Event()
    try:
        return await asyncio.to_thread(work, left.is_set)
    finally:
        left.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies(PromptSet):
    """One prompt, so many times over."""

    prompt: Prompt

    def __iter__(self) -> Iterator[Prompt]:
        return (replace(self.prompt, number=number) for number in range(1, self.count + 1))


def repeat_prompt(prompt: Prompt, count: int) -> Copies:
    """`prompt` as a set of `count`: what differs among them is no matter of the prompt.

    >>> [each.number for each in repeat_prompt(parse_prompt("a"), 3)]
    [1, 2, 3]
    """
    digest = hashlib.sha256(canonical(prompt.body)).hexdigest()[:16]
    return Copies(Path(), count, digest, prompt=prompt)


def parse_prompt(text: str, *, chat: bool = False) -> Prompt:
    """What was typed as a prompt: text, or one JSON object as a line of a file has it.

    `chat` makes text the user's message of a conversation. Raises ConfigError.

    >>> parse_prompt("def f(", chat=True).body
    {'messages': [{'role': 'user', 'content': 'def f('}]}
    """
    where = "the prompt"
    body = _body(where, text.strip(), lines=False)
    if chat and isinstance(body.get("prompt"), str):
        body = {"messages": [{"role": "user", "content": body["prompt"]}]}
    _check(where, body)
    return Prompt(1, 1, body)


def bundled_path(name: str | Path) -> Path:
    """The file of a bundled set; raises UsageError for another name."""
    if name not in BUNDLED:
        raise UsageError(f"there is no set {name}", remedy=f"there are {', '.join(BUNDLED)}")
    return Path(str(files("specdeck") / "sample_configs" / "prompts" / f"{name}.jsonl"))


def source_name(path: Path) -> str:
    """What `prompts` takes for a file: the name of a bundled set, or the path.

    >>> source_name(bundled_path("chat")), source_name(Path("mine.jsonl"))
    ('chat', 'mine.jsonl')
    """
    return next((name for name in BUNDLED if bundled_path(name) == path), str(path))


def _read(path: Path, proceed: Callable[[], None] | None = None) -> Iterator[Prompt]:
    number, lines = 0, path.suffix.lower() == ".jsonl"
    for line, text in _lines(path):
        if proceed is not None:
            proceed()
        if text.strip():
            number += 1
            yield Prompt(number, line, _body(f"{path}:{line}", text.strip(), lines=lines))


def _pass_over(prompts: Iterator[Prompt], lines: Collection[int]) -> Iterator[Prompt]:
    """`prompts` without those of some `lines`, numbered anew."""
    if not lines:
        return prompts
    rest = (prompt for prompt in prompts if prompt.line not in lines)
    return (replace(prompt, number=number) for number, prompt in enumerate(rest, start=1))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as file:
            for number, text in enumerate(iter(lambda: file.readline(_LONGEST), ""), start=1):
                if len(text) == _LONGEST:
                    raise ConfigError(f"{path}:{number}: a line of more than 8 million characters")
                yield number, text
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text", remedy="save it as UTF-8") from None
    except OSError as error:
        why = error.strerror or "cannot be read"
        raise ConfigError(f"{path}: {why.lower()}", remedy="check --prompts") from error
    except ValueError:  # such as one with a NUL
        raise ConfigError(f"{str(path)!r} is no path", remedy="check --prompts") from None


def _body(where: str, text: str, *, lines: bool) -> dict[str, Any]:
    """One prompt; in JSON `lines` every line is JSON, in others what looks like an object."""
    # A line that begins like an object was meant as one: as a prompt it would be a mistake.
    if not lines and not text.startswith("{"):
        return {"prompt": text}
    try:
        body: Any = _DECODER.decode(text)
        _ENCODER.encode(body).encode()  # what UTF-8 and JSON cannot say, no request can
    except (ValueError, RecursionError) as error:
        is_deep = isinstance(error, RecursionError)
        other = "it is nested too deep" if is_deep else "a number is out of range"
        why = getattr(error, "msg", None) or getattr(error, "reason", other)
        raise ConfigError(f"{where}: no JSON: {why}", remedy="put one object on a line") from None
    if isinstance(body, str):
        body = {"prompt": body}
    if not isinstance(body, dict):
        remedy = 'give {"prompt": …}, {"messages": […]} or a string'
        raise ConfigError(f"{where}: neither an object nor a string", remedy=remedy)
    _check(where, body)
    return {key: value for key, value in body.items() if key != "id"}


def _no_number(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is no number", name, 0)


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def _check(where: str, body: dict[str, Any]) -> None:
    """ConfigError unless `body` is one prompt; vLLM judges what lies deeper."""
    if ("prompt" in body) == ("messages" in body):
        remedy = 'give {"prompt": …} or {"messages": […]}'
        raise ConfigError(f"{where}: neither a prompt nor a chat, or both", remedy=remedy)
    unknown = sorted(set(body) - (_CHAT if "messages" in body else _COMPLETION))
    if unknown:
        remedy = "settings are the same for all prompts: give them as options, or leave them out"
        raise ConfigError(f"{where}: {unknown[0]} is no part of a prompt", remedy=remedy)
    if not _sound(body):
        remedy = "a prompt is text or token ids, messages is a list of objects"
        raise ConfigError(f"{where}: the prompt is empty or of another type", remedy=remedy)
    tokens = body.get("max_tokens", 1)
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MOST:
        remedy = f"give 1 to {MOST}"
        raise ConfigError(f"{where}: max_tokens is no number of tokens", remedy=remedy)


def _sound(body: dict[str, Any]) -> bool:
    if "messages" in body:
        messages = body["messages"]
        return (
            isinstance(messages, list)
            and bool(messages)
            and all(isinstance(message, dict) and "role" in message for message in messages)
        )
    prompt = body["prompt"]
    if isinstance(prompt, list):
        return bool(prompt) and all(isinstance(t, int) and not isinstance(t, bool) for t in prompt)
    return isinstance(prompt, str) and bool(prompt)
