"""What the load generator asks for: kinds of prompt, and how kinds and streams follow in time.

Pure: a prompt is decided by kind, seed and number, a phase by the seconds since the profile began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Literal

from specdeck.engine.demo import corpus

Kind = Literal["predictable", "hard", "prompts"]
PROMPT_CHARACTERS = 360
"""About a hundred tokens of the demo's tokenizer."""
LONG_PROMPT_CHARACTERS = 1600
"""About 400 tokens, of the 1024 that the demo serves."""
_TOKENS = 2048
"""Token ids that every model has: the demo's own vocabulary is as small as this."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a profile asks for during one stretch of time."""

    kind: Kind
    seconds: float
    streams: int | None = None
    """Streams at once; None takes the number that the operator chose."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Phases that follow one another for ever."""

    name: str
    phases: tuple[Phase, ...]

    def at(self, elapsed: float) -> Phase:
        """The phase that runs `elapsed` seconds after the profile began.

        >>> MIXED.at(29.9).kind, MIXED.at(30.0).kind, MIXED.at(60.0).kind
        ('predictable', 'hard', 'predictable')
        >>> [BURST.at(t).streams for t in (0, 15, 30, 45, 60)]
        [1, 4, 8, 16, 1]
        """
        left = elapsed % sum(phase.seconds for phase in self.phases)
        for phase in self.phases:
            if left < phase.seconds:
                return phase
            left -= phase.seconds
        return self.phases[-1]

    @property
    def widest(self) -> int:
        """The most streams that a phase asks for; 0 when the operator decides."""
        return max(phase.streams or 0 for phase in self.phases)


PREDICTABLE = Profile("predictable", (Phase("predictable", 60.0),))
HARD = Profile("hard", (Phase("hard", 60.0),))
MIXED = Profile("mixed", (Phase("predictable", 30.0), Phase("hard", 30.0)))
BURST = Profile("burst", tuple(Phase("predictable", 15.0, n) for n in (1, 4, 8, 16)))
PROMPTS = Profile("prompts", (Phase("prompts", 60.0, 12),))
PROFILES = {profile.name: profile for profile in (PREDICTABLE, HARD, MIXED, BURST, PROMPTS)}


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion to request."""

    prompt: str
    max_tokens: int
    frequency_penalty: float = 0.0
    """What a token loses, in logits, for each time the answer already has it."""
    allowed: tuple[int, ...] = ()
    """The only tokens that the answer may have; empty for all."""

    def body(self, model: str) -> dict[str, Any]:
        """The JSON of a streamed /v1/completions request that reports its usage as it goes."""
        body = {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "frequency_penalty": self.frequency_penalty,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return {**body, "allowed_token_ids": list(self.allowed)} if self.allowed else body


def ask(kind: Kind, seed: int, number: int) -> Ask:
    """The `number`-th request of a kind.

    >>> ask("predictable", 1, 7) == ask("predictable", 1, 7) != ask("predictable", 2, 7)
    True
    """
    return ASKS[kind](Random(f"{kind} {seed} {number}"))


def predictable(random: Random) -> Ask:
    """The opening of boilerplate that training never saw, to be gone on with."""
    kind = random.choice(corpus.CODE)
    text = corpus.write_idioms(kind, corpus.FIRST_UNSEEN_SEED + random.randrange(10**6))
    return Ask(_opening(text, PROMPT_CHARACTERS), max_tokens=128)


def hard(random: Random) -> Ask:
    """A place in the standard library, to be gone on with in an eighth of the vocabulary.

    As under a grammar, the draft does not know which tokens the target is confined to, and so
    is mostly wrong. Greedy like the predictable kind, with a penalty on what was written before:
    a small model left alone repeats itself, and repetition is what the draft is best at.
    """
    library = _library()
    text = random.choice(library)
    start = random.randrange(max(1, len(text) - PROMPT_CHARACTERS))
    allowed = sorted(random.sample(range(_TOKENS), _TOKENS // 8))
    prompt = text[start : start + PROMPT_CHARACTERS]
    return Ask(prompt, max_tokens=64, frequency_penalty=1.0, allowed=tuple(allowed))


def prompts(random: Random) -> Ask:
    """A long piece of boilerplate, to be gone on with by a few tokens.

    As in classification or retrieval: reading costs more than writing, and nearly every
    step has tokens of a prompt in it. It begins with a number, so that no prompt is in the cache.
    Tables of numbers are left out: they have too many tokens for the demo's context.
    """
    kinds = [kind for kind in corpus.CODE if kind is not corpus.counting]
    parts = [f"# {random.randrange(10**12)} {random.randrange(10**12)}"]
    while sum(map(len, parts)) < LONG_PROMPT_CHARACTERS:
        seed = corpus.FIRST_UNSEEN_SEED + random.randrange(10**6)
        parts.append(corpus.write_idioms(random.choice(kinds), seed))
    return Ask(_opening("\n".join(parts), LONG_PROMPT_CHARACTERS), max_tokens=12)


ASKS: dict[Kind, Callable[[Random], Ask]] = {
    "predictable": predictable,
    "hard": hard,
    "prompts": prompts,
}


@cache
def _library() -> tuple[str, ...]:
    """Modules long enough to have a middle; read once, as every request wants one."""
    return tuple(text for text in corpus.modules(corpus.sources()) if len(text) > 4000)


def _opening(text: str, characters: int) -> str:
    """The whole lines at the start of a text, at most `characters` of it.

    The last line break is left out: the tokenizer writes it together with the indentation that
    follows, so a prompt that ends in one looks to the model like the end of the text.

    >>> _opening("one\\ntwo\\nthree\\n", 9)
    'one\\ntwo'
    """
    end = text.rfind("\n", 0, characters)
    return text[: end if end > 0 else characters]
