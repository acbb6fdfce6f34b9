"""Both arms side by side, as words: what each says, where they part, what kind of parting it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specdeck.console.state.check import Split
from specdeck.console.widgets.cells import Bar, Cell, Row, Tone, heading
from specdeck.console.widgets.format import KeyLabel
from specdeck.engine.divergence.outcome import streaming_notices
from specdeck.engine.divergence.report import structure_line
from specdeck.engine.text import format_value, printable

if TYPE_CHECKING:
    from specdeck.engine.divergence.arms import Arm, Name
    from specdeck.engine.divergence.compare import Divergence
    from specdeck.engine.divergence.prompts import Prompt
    from specdeck.engine.divergence.race import FirstDifference, RaceVerdict

CLASS_TONES: dict[str, Tone] = {
    "near_tie": "warn", "material": "bad", "structural": "bad", "stream_only": "bad",
    "unreproduced": "warn", "reference_differs": "bad", "invalid": "bad",
}  # fmt: skip
GRADES = {"soft": "soft: the same engine without drafts", "hard": "hard: another engine"}


def identity(name: str, split: Split, wanted: str | None) -> Row:
    """The engine, and what it is compared with; the grade is always there."""
    grade = "hard" if wanted else "soft"
    if split.arms is not None:
        grade = split.arms[1].grade
    left = (Cell(" check ", "strong"), Cell(f" {name}"))
    target = split.arms[1].url if split.arms and grade == "hard" else wanted or ""
    other = Cell(f"{target} " if target else "", "muted")
    return Row(
        left,
        (Cell("reference ", "muted"), other, Cell(f"{GRADES[grade]} ", "accent")),
        shorter=((Cell("reference ", "muted"), Cell(f"{grade} ", "accent")),),
    )


def prompt_row(prompt: Prompt | None, source: str, count: int | None, key_label: KeyLabel) -> Row:
    """Which prompt is asked."""
    if prompt is None:
        return Row((Cell(f" no prompt: press {key_label('check.prompt')}", "warn"),))
    place = f" {source} {prompt.number}" + (f" of {count}" if count else "")
    return Row((Cell(f"{place} ", "accent"), Cell(f" {preview(prompt)}", "muted")))


def preview(prompt: Prompt, width: int = 160) -> str:
    """The first words of a prompt, or of the last message of a chat, on one line.

    >>> from specdeck.engine.divergence.prompts import Prompt
    >>> preview(Prompt(1, 1, {"prompt": "import os\\n\\ndef f("}))
    'import os ↵ def f('
    """
    body = prompt.body
    if prompt.chat:
        content = body["messages"][-1].get("content")
        words = content if isinstance(content, str) else "…"
    else:
        words = body["prompt"] if isinstance(body["prompt"], str) else f"tokens {body['prompt']}"
    text = " ↵ ".join(part.strip() for part in words.splitlines() if part.strip())
    return printable(text[:width] + ("…" if len(text) > width else ""))


def visible(text: str) -> str:
    """A token with its blanks shown.

    >>> visible(" the"), visible("\\n\\t"), visible("")
    ('␣the', '↵⇥', '∅')
    """
    shown = text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")
    return printable(shown) or "∅"


def arm_heading(split: Split, name: Name) -> Row:
    """An arm's name, how it decodes, how much it has said."""
    arm = None if split.arms is None else split.arms[0 if name == "serving" else 1]
    side, parted, judged = split.sides[name], split.difference, split.verdict
    words = f"{parted.divergence.index} agree" if parted else f"{side.tokens} tokens"
    said = (Cell(" "), Cell(words)) if side.tokens or parted else ()
    left = (Cell(name, "strong"), Cell(f" {_decoding(arm)} ", "muted"))
    if judged is None or parted is not None:
        return Row(left, said, "─", ((),))
    return Row(left, (*said, Cell(f" · {judged.seconds[name]:.2f} s", "muted")), "─", (said, ()))


def _decoding(arm: Arm | None) -> str:
    if arm is None:
        return ""
    if arm.pin is not None:
        return f"k={arm.pin}, pinned"
    k = f"k={format_value(arm.facts.k)}"
    return f"{k}, {arm.facts.mode}" if arm.facts.mode else k


def passage(split: Split, name: Name) -> tuple[Cell, ...]:
    """What an arm says: quiet while the arms agree, then its own token."""
    side, parted = split.sides[name], split.difference
    if parted is None:
        equal = split.verdict is not None
        # Both begin at the same character, or their lines would not be the same ones.
        begin = max(one.dropped for one in split.sides.values()) - side.dropped
        return (Cell(side.text[begin:], "muted" if not equal else "plain"),)
    found = parted.divergence
    token = found.serving_token if name == "serving" else found.reference_token
    common = parted.texts.common
    before = Cell(side.text if common is None else common, "muted")
    return before, Cell(_format_token(parted, token), "accent" if name == "serving" else "strong")


def _format_token(parted: FirstDifference, token: int | None) -> str:
    if token is None:
        return "◼ends here"
    text = parted.texts.tokens.get(token)
    return f"⟨{token}⟩" if text is None else f"▸{visible(text)}"


def candidates_heading(split: Split, name: Name) -> Row:
    """The margin of an arm's token over the other arm's."""
    if split.difference is None:
        return Row()
    found = split.difference.divergence
    margin = found.margin_serving if name == "serving" else found.margin_reference
    own = found.serving_token if name == "serving" else found.reference_token
    said = Cell("–" if margin is None else f"{_bound(found, margin)}{margin:.3f}", "strong")
    token = "the end" if own is None else str(own)
    return heading(f"token {found.index}: {token}", Cell("margin ", "muted"), said)


def _bound(found: Divergence, margin: float) -> str:
    return "≥ " if found.bounded and margin >= 0 else ""


def candidates(split: Split, name: Name) -> tuple[Bar, ...]:
    """The likeliest tokens of an arm where the two part; a bar is a probability."""
    if split.difference is None:
        return ()
    found, texts = split.difference.divergence, split.difference.texts.tokens
    top = found.serving_top if name == "serving" else found.reference_top
    own = found.serving_token if name == "serving" else found.reference_token
    return tuple(
        Bar(
            f"{'▸' if token == own else ' '} {token:>6} {visible(texts.get(token, '?'))}",
            math.exp(min(0.0, logprob)),
            f"{logprob:.3f}".replace("-", "−"),
            "accent" if token == own else "plain",
        )
        for token, logprob in top[:2]
    )


def findings(split: Split, key_label: KeyLabel, *, elsewhere: bool = True) -> Iterator[Row]:
    """What is to be said below the arms, the gravest first.

    `elsewhere` is whether another engine could take the reference's part.
    """
    if split.problem is not None:
        yield _finding("cannot", "bad", split.problem)
        if split.arms is None and elsewhere:
            key = key_label("check.edit")
            yield _finding("or", "muted", f"{key} names another engine to compare with")
    if split.arms is not None and (price := split.arms[1].price) is not None:
        other = f"; {key_label('check.edit')} names another engine to ask" if elsewhere else ""
        yield _finding("costs", "warn", f"{price}{other}")
    if split.arms is not None and split.verdict is None:
        from specdeck.engine.divergence.arms import explain_idle_drafter  # not for the first paint

        if (idle := explain_idle_drafter(*split.arms)) is not None:
            yield _finding("no drafts", "warn", idle)
    if split.note is not None:
        yield _finding(split.note[0], "accent", split.note[1])
    if split.recorded is not None:
        yield _finding("in the check", "accent", split.recorded)
    if split.verdict is not None:
        yield from _judgement(split.verdict)
    elif split.difference is not None:
        at = split.difference.divergence.index
        yield _finding("differs", "warn", f"at token {at}; being judged")
    elif split.running:
        agreed = min(side.tokens for side in split.sides.values())
        yield _finding("equal", "muted", f"so far, {agreed} tokens")
    elif split.problem is None and split.arms is not None:
        asks, chooses = key_label("check.run"), key_label("check.prompt")
        yield _finding("ready", "muted", f"{asks} asks both arms, {chooses} chooses a prompt")


def _judgement(judged: RaceVerdict) -> Iterator[Row]:
    data = judged.outcome.as_json()
    case = data["cases"][0] if data["cases"] else None
    if case is None or judged.case is None:
        ours, theirs = judged.seconds["serving"], judged.seconds["reference"]
        text = f"to the end: {judged.tokens} tokens, serving {ours:.2f} s, reference {theirs:.2f} s"
        yield _finding("equal", "good", text)
    else:
        kind = str(case["class"])
        yield _finding(kind.replace("_", " "), CLASS_TONES[kind], reason(case, data["near_tie"]))
        if case["recheck"]:
            yield _finding("recheck", "plain", recheck(case["recheck"]))
    for notice in streaming_notices(judged.outcome.totals):
        yield _finding("streaming", "muted", notice)
    yield _floor(judged)
    if judged.outcome.totals.serving.drafted == 0:
        why = "the serving arm drafted nothing: speculation is not tried"
        yield _finding("no drafts", "warn", why)


def reason(case: dict[str, Any], ruler: dict[str, Any]) -> str:
    """Why a case is of its class."""
    limit = f"{ruler['threshold']:.3g}"
    if case["class"] == "invalid":
        return f"the serving arm alone breaks the prompt's rules: {structure_line(case)}"
    if case["class"] == "stream_only":
        if case.get("streamed_by"):
            return f"streamed and non-streamed output of the {case['streamed_by']} arm alone differ"
        return "the arms make different text of the same tokens"
    if case["structure"]:
        changed = structure_line(case)
        if case["class"] == "structural":
            return f"{changed} (the tokens themselves are a near tie)"
        return f"a confident token was replaced: {changed}"
    if case["class"] == "reference_differs":
        return "serving was sure, and the target, fed its answer, sides with it"
    if case["class"] == "unreproduced":
        return "a confident token was replaced, which some look of the target does not show"
    if case["class"] == "near_tie":
        resolution = f"{ruler['resolution']:.3g}"
        return f"margins up to {limit} may be rounding (logits have a resolution of {resolution})"
    return f"a confident token was replaced: a margin above {limit} is no rounding"


def recheck(seen: dict[str, Any]) -> str:
    """What the target says of the serving arm's tokens, fed to it in one pass.

    >>> recheck({"gap": 2.125, "rank": 3, "worst": 2.125, "confirmed": True})
    'the target, fed the same tokens, prefers its own by 2.125 (rank 3): confirmed'
    """
    if seen["gap"] is None:
        return "the target gives no figure for the token"
    rank = "" if seen["rank"] is None else f" (rank {seen['rank']})"
    if not seen["confirmed"]:
        return f"the target, fed the same tokens, would have agreed within {seen['gap']:.3f}{rank}"
    return f"the target, fed the same tokens, prefers its own by {seen['gap']:.3f}{rank}: confirmed"


def _floor(judged: RaceVerdict) -> Row:
    totals = judged.outcome.totals
    arms = {"serving": totals.serving_mismatches, "reference": totals.reference_mismatches}
    words = (f"{arm} {'differs from' if n else 'repeats'} itself" for arm, n in arms.items())
    tone: Tone = "warn" if any(arms.values()) else "muted"
    return _finding("A/A", tone, f"asked twice, {', '.join(words)}")


def _finding(name: str, tone: Tone, text: str) -> Row:
    return Row((Cell(f" {name:<12} ", tone), Cell(printable(text))))
