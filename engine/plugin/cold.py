"""Cold target-only: the drafter is left out of every step, until drafts are wanted again.

Warm, the drafter still makes its one pass at k = 0, so it knows every token and can draft at
once. Cold, it makes none, which is what leaving cold has to make up for. A k that is set while
cold is in force from then on. When cold is wanted is in `steering`, how a worker leaves its drafter
out in `drafters`, whether it can in `capabilities`.
"""

from __future__ import annotations

from specdeck.engine.plugin.engine import Engine


def enter_cold(engine: Engine) -> None:
    """Leaves the drafter out of every step with k = 0."""
    engine.skip_drafter(True)


def leave_cold(engine: Engine) -> tuple[str, ...]:
    """Takes the drafter back in, and has it see every token anew; what there is to say of it."""
    engine.skip_drafter(False)
    # The drafter saw none of the tokens of the cold time, neither in the running requests nor
    # in the prefix cache: acceptance would stay near zero for both.
    preempted = engine.resync()
    return (f"resync: {preempted} requests preempted, prefix cache emptied",)
