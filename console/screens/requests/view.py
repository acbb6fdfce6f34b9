"""Requests in words: sorted, searched, and as rows; pure, no Textual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, get_args

from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.cells import Cell, Cells, Row, Tone, heading
from specdeck.console.widgets.format import DASH, KeyLabel, count, number, percent
from specdeck.engine.protocol.requests import RequestLine, Requests
from specdeck.engine.text import format_duration, oneline

Order = Literal["age", "prompt", "output", "acceptance"]
ORDERS: Final[tuple[Order, ...]] = get_args(Order)

_KEYS: Final[dict[Order, Callable[[RequestLine], float]]] = {
    "age": lambda line: -line.age_s,
    "prompt": lambda line: -line.prompt_tokens,
    "output": lambda line: -line.output_tokens,
    # The poorest first; what drafted nothing has none to be sorted by.
    "acceptance": lambda line: 2.0 if line.acceptance is None else line.acceptance,
}
_NARROW = 72
_TONES: Final[dict[str, Tone]] = {
    "running": "good", "waiting": "muted", "preempted": "warn", "error": "bad", "abort": "warn",
    "repetition": "warn",
}  # fmt: skip


def describe_kind(line: RequestLine) -> str:
    """What is not usual of a request, and what was cached of its prompt.

    >>> line = RequestLine(1, "stop", 1.0, 9, 4, None, 0, 0, 0, 0, "0%", "none", "json", "sampled")
    >>> describe_kind(line)
    'json sampled cached 0%'
    """
    words = [word for word in (line.adapter, line.structured) if word != "none"]
    words += [line.temperature, f"cached {line.cached if line.cached != 'other' else DASH}"]
    if line.preemptions:
        words.append(f"preempted {line.preemptions}x")
    return " ".join(words)


def find_requests(lines: Iterable[RequestLine], wanted: str) -> list[RequestLine]:
    """Those that have every word of `wanted` in what the screen says of them.

    >>> line = RequestLine(1, "running", 1.0, 9, 4, 2, 0, 0, 0, 0, "0%", "sql", "none", "greedy")
    >>> [len(find_requests([line], wanted)) for wanted in ("", "SQL greedy", "json", "k2")]
    [1, 1, 0, 1]
    """
    words = wanted.casefold().split()
    return [line for line in lines if all(word in _searchable_text(line) for word in words)]


def _searchable_text(line: RequestLine) -> str:
    own = "" if line.k is None else f" pinned k{line.k}"
    return f"{line.number} {line.state} {describe_kind(line)}{own} rank{line.rank}".casefold()


def sort_requests(lines: Iterable[RequestLine], order: Order) -> list[RequestLine]:
    """The oldest, the longest or the poorest first; who came first, among equals."""
    return sorted(lines, key=lambda line: (_KEYS[order](line), line.number))


def title(requests: Requests | None, order: Order, wanted: str, more: Cells = ()) -> Row:
    """How many there are, which are listed how, and how many rows are not shown."""
    if requests is None:
        return heading("requests")
    found = f'  "{oneline(wanted)}"' if wanted.strip() else ""
    said = f"requests: {requests.running} running, {requests.waiting} waiting"
    return heading(f"{said}  by {order}{found}", *more)


def head(width: int) -> Row:
    """The names of the columns."""
    share = "accepted" if width < _NARROW else "acc."
    names = _columns("#", "state", "age", "prompt", "output", "k", share, "kind", width)
    return Row((Cell(names, "muted"),))


def _columns(
    name: str, state: str, age: str, prompt: str, output: str, k: str, accepted: str, kind: str,
    width: int,
) -> str:  # fmt: skip
    left = f"{name:>6} {state:<9} {age:>10}"
    if width < _NARROW:
        return f"{left} {output:>6} {k:>2} {accepted:>8}"
    return f"{left} {prompt:>6} {output:>6} {k:>2} {accepted:>5}  {kind}"


def rows(
    track: Track, order: Order, wanted: str, width: int, key_label: KeyLabel
) -> tuple[Row, ...]:
    """Requests under way, then those that ended, the newest first; why there are none."""
    requests = track.requests
    if requests is None:
        return _explain(track)
    active = sort_requests(find_requests(requests.active, wanted), order)
    finished = find_requests(requests.finished, wanted)
    listed = [_row(line, requests, width) for line in active]
    hidden = requests.running + requests.waiting - len(requests.active)
    if hidden > 0:
        listed.append(Row((Cell(f"       {hidden} more wait", "muted"),)))
    if not active:
        none = "none matches" if wanted.strip() else "nothing runs"
        listed.append(Row((Cell(f"       {none}", "muted"),)))
    if finished:
        listed.append(_finished_heading(requests.finished, width))
        listed += [_row(line, requests, width) for line in finished]
    return tuple(listed)


def _finished_heading(finished: Sequence[RequestLine], width: int) -> Row:
    """With both averages of acceptance: vLLM's counters give long answers more weight than a mean
    over requests does, and the two may tell different stories."""
    rates = [line.acceptance for line in finished if line.acceptance is not None]
    drafted = sum(line.drafted for line in finished)
    if not drafted:
        return heading("finished, the newest first")
    by_token = sum(line.accepted for line in finished) / drafted
    by_request = sum(rates) / len(rates)
    accepted = f"by token {percent(by_token)} · by request {percent(by_request)}"
    text = "finished" if width < _NARROW else "finished, the newest first"
    return heading(text, Cell(accepted, "strong"))


def _explain(track: Track) -> tuple[Row, ...]:
    error = track.unlisted
    if track.recorded:
        return (Row((Cell(" a recording has no requests", "muted"),)),)
    if track.past:
        return (Row((Cell(" requests are not recorded: nobody knows which ran then", "muted"),)),)
    if error is None:
        return (Row((Cell(" asking the engine", "muted"),)),)
    return (Row((Cell(f" {oneline(error.line())}", "warn"),)),)


def _row(line: RequestLine, requests: Requests, width: int) -> Row:
    k = requests.k if line.k is None else min(line.k, requests.k)
    text = _columns(
        str(line.number), line.state, format_duration(line.age_s), number_of(line.prompt_tokens),
        number_of(line.output_tokens), DASH if line.ended else count(k),
        percent(line.acceptance), describe_kind(line), width,
    )  # fmt: skip
    tone: Tone = "muted" if line.ended is not None else "plain"
    before, after = text[:7], text[16:]
    return Row((
        Cell(before, "muted"), Cell(text[7:16], _TONES.get(line.state, tone)), Cell(after, tone),
    ))  # fmt: skip


def number_of(tokens: int) -> str:
    """Tokens, whole as long as they are few.

    >>> number_of(0), number_of(812), number_of(131_072)
    ('0', '812', '131.1k')
    """
    return str(tokens) if tokens < 10_000 else number(float(tokens))
