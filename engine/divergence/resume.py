"""A check that was cut short goes on where it stopped: by what it is found, and what is left.

One run is another's continuation when arms, prompts, settings and privacy are the same. The
store keeps it under a key of these, and lets one process at a time go on with it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Any

from specdeck.engine.divergence.arms import Arm
from specdeck.engine.divergence.prompts import Prompt, PromptSet
from specdeck.engine.divergence.requests import RequestSettings
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.fingerprint.name import is_whole
from specdeck.engine.store.checks import Checks, Run

_FORM = 2
"""Of the sums that a run goes on from: one that was begun with others begins anew."""

_PASSED_AT_ONCE = 100
"""Prompts of some kilobytes: a few milliseconds."""


def find_or_begin_run(
    store: Checks,
    arms: tuple[Arm, Arm],
    prompts: PromptSet,
    settings: RequestSettings,
    *,
    private: bool,
    fresh: bool,
    t: float,
) -> Run:
    """The run that was cut short, unless `fresh` or another process has it; else one from `t`.

    Of an engine that is not known again, nothing is gone on with: another one may answer.
    """
    key = run_key(arms, prompts, settings, private=private)
    same = all(arm.facts.is_known_again for arm in arms)
    known = store.resume(key) if same and not fresh else None
    if known is not None:
        return known
    serving, reference = arms
    facts = {
        "serving": serving.as_json(),
        "reference": reference.as_json(),
        "settings": asdict(settings),
        "prompts": prompts.digest,
    }
    return store.begin(key, t, serving.url, facts)


def run_key(
    arms: tuple[Arm, Arm], prompts: PromptSet, settings: RequestSettings, *, private: bool
) -> str:
    """What a run is found by; the same for every attempt at it."""
    wanted = {
        "form": _FORM,
        "arms": [arm_key(arm) for arm in arms],
        "prompts": [prompts.digest, prompts.count],
        "settings": asdict(settings),
        "private": private,
    }
    return hashlib.sha256(canonical(wanted)).hexdigest()[:32]


def arm_key(arm: Arm) -> dict[str, Any]:
    """What an arm is known by; a hard reference with a fingerprint may listen elsewhere by then.

    Under a random port, each `--hard` starts its engine anew.
    """
    moves = arm.grade == "hard" and is_whole(arm.facts.fingerprint)
    return {**arm.identity(), "url": None} if moves else arm.identity()


async def unasked_prompts(
    prompts: PromptSet, store: Checks, run: Run
) -> AsyncGenerator[Prompt, None]:
    """What no attempt at `run` has asked both arms yet.

    Passing over a million prompts takes half a minute, in which signals and keys are heard.
    """
    for prompt in prompts:
        if not store.has(run.id, prompt.number):
            yield prompt
        elif prompt.number % _PASSED_AT_ONCE == 0:
            await asyncio.sleep(0)


@dataclass(slots=True)
class ResumeState:
    """How far a check is, and whether the same command resumes from there."""

    of: int
    """Prompts there are."""
    fresh: bool = False
    """Whether the command begins anew whenever it is given."""
    done: int = 0
    can_resume: bool = True
    """Whether what was done is found again by the same command."""
    survives_restart: bool = True
    """Whether the engines are known again after a restart."""
    may_move: bool = False
    """Whether a policy moves the engine's k, of which the run is."""
    finished: bool = False
    answers: int = 0
    """Those that came in this attempt."""

    def note_arms(self, arms: tuple[Arm, Arm], *, stored: bool, own: bool) -> None:
        """The arms are known; `own` is a reference that this command starts for itself."""
        self.survives_restart = all(arm.facts.started is None for arm in arms)
        self.may_move = arms[0].facts.policy not in (None, "fixed")
        # Its port is another the next time, and only a whole fingerprint stands for it then.
        moved = own and arm_key(arms[1])["url"] is not None
        same = all(arm.facts.is_known_again for arm in arms)
        self.can_resume = stored and same and not moved

    def line(self) -> str:
        """One line for the operator.

        >>> ResumeState(200, done=30).line()
        'stopped after 30 of 200 prompts: the same command resumes from there'
        >>> ResumeState(200, done=30, may_move=True).line().removeprefix("stopped after 30 of ")
        '200 prompts: the same command resumes from there, unless k has moved by then'
        >>> ResumeState(200, done=30, can_resume=False).line()
        'stopped after 30 of 200 prompts: the same command starts over'
        """
        if self.finished:
            return "stopped when all was compared: `specdeck check URL --history` shows it"
        if not self.done:
            after = f"after {self.answers} answers, " if self.answers else ""
            return f"stopped {after}before any prompt was compared"
        far = f"stopped after {self.done} of {self.of} prompts"
        if not self.can_resume:
            return f"{far}: the same command starts over"
        same = "the same command without --fresh" if self.fresh else "the same command"
        ends = [
            *(() if self.survives_restart else ("an engine is restarted",)),
            *(("k has moved by then",) if self.may_move else ()),
        ]
        unless = f", unless {' or '.join(ends)}" if ends else ""
        return f"{far}: {same} resumes from there{unless}"
