"""What every step of the scheduler did, taken down as vLLM accounts for it."""

from __future__ import annotations

import functools
import inspect
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from operator import add, attrgetter
from time import monotonic
from typing import Any

from specdeck.engine.plugin.engine import StepListener
from specdeck.engine.plugin.guards import DisableOnError, RetryAfterError
from specdeck.engine.plugin.looks import REMEMBERED_STEPS
from specdeck.engine.plugin.request_pins import Drafts, Pins
from specdeck.engine.policy.fruitless import EVERY
from specdeck.engine.policy.step import Step

_SUMS = {
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens_per_pos",
    "num_draft_tokens_per_pos",
}

_MOST_MISSED = 8
"""Steps without a record after which the k before them is unknown: some have nothing to run."""


class Recorder:
    """Wraps one scheduler's methods once and counts what passes through them."""

    def __init__(
        self,
        scheduler: Any,
        k_max: int,
        listener: StepListener,
        *,
        settle: int = 1,
        pins: Pins | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`settle` is that of `StepOrder`; `clock` times the pause after a failure, in seconds.

        What requests that are among the `pins` had of a step is none of what others choose by.
        """
        self._scheduler = scheduler
        self._before_step = listener.before_step
        self._after_step = listener.after_step
        self._order = StepOrder(settle)
        self._pins = pins
        self.ring: deque[Step] = deque(maxlen=REMEMBERED_STEPS)
        """The last steps, oldest first."""
        self.scheduled = 0
        self.drafts = 0
        self.drafted = [0] * k_max
        self.accepted = [0] * k_max
        self.on_drafts: Callable[[Collection[str], Collection[str]], None] | None = None
        """Told every `EVERY` steps whose drafts were verified, and who got more than one token."""
        self._pinned_drafts: Drafts | None = None
        """Of the step that is accounted for."""
        self._outstanding: dict[int, int] = {}
        self._k_max = k_max
        self._ended: float | None = None
        """When the step before ended; None when the engine had nothing to do after it."""
        self._guard = DisableOnError("watching and steering", on_failure=listener.on_blind)
        self._guard_before = RetryAfterError("reverting what runs out", clock=clock)
        """Apart, since leases and trials must end when a policy has failed, or one of them."""
        self._summed: bool | None = None
        """Whether this vLLM sums drafts up per step; None until the first one was seen."""
        self._clear()
        self._wrap("schedule", self._schedule)
        self._wrap("update_from_output", self._update_from_output)
        self._unwrap = self._wrap("make_spec_decoding_stats", self._make_spec_decoding_stats)
        if hasattr(scheduler, "make_stats"):
            self._wrap("make_stats", self._make_stats)

    def after(self, since: int, most: int) -> list[Step]:
        """The first `most` of the ring's steps after number `since`."""
        first = bisect_right(self.ring, since, key=attrgetter("step"))
        return list(islice(self.ring, first, first + most))

    def _wrap(self, name: str, wrapper: Callable[[Any], Any]) -> Callable[[], None]:
        """Puts `wrapper` around a method; what takes it away again, unless it is wrapped itself."""
        original = getattr(self._scheduler, name)
        wrapped = functools.wraps(original)(wrapper(original))
        setattr(self._scheduler, name, wrapped)

        def unwrap() -> None:
            if getattr(self._scheduler, name) is wrapped:
                setattr(self._scheduler, name, original)

        return unwrap

    def _clear(self) -> None:
        self._stats: Any = None
        """vLLM's own sums over this step's drafts, as far as they are made."""
        self._drafts = self._drafted = 0
        if self._summed:
            return
        self._by_length = [0] * (self._k_max + 1)
        """Drafts of this step by their length; `_by_accepted` by their accepted tokens."""
        self._by_accepted = [0] * (self._k_max + 1)

    def _add_up(self) -> tuple[int, ...]:
        """Enters the step's drafts into the totals; those accepted at each position."""
        if self._stats is not None and self._summed:
            return self._take_sums(self._stats)
        accepted = [0] * self._k_max
        if not self._drafts:
            return tuple(accepted)
        self.drafts += self._drafts
        had = reached = 0
        for position in range(self._k_max - 1, -1, -1):
            had += self._by_length[position + 1]
            reached += self._by_accepted[position + 1]
            self.drafted[position] += had
            self.accepted[position] += reached
            accepted[position] = reached
        return tuple(accepted)

    def _schedule(self, schedule: Any) -> Any:
        def schedule_step(*args: Any, **kwargs: Any) -> Any:
            self._guard_before(self._before_step)
            output = schedule(*args, **kwargs)
            self.scheduled += 1
            if len(self._outstanding) > 64:  # steps that vLLM dropped without an update
                self._outstanding.clear()
            self._outstanding[id(output)] = self.scheduled
            return output

        return schedule_step

    def _update_from_output(self, update: Any) -> Any:
        def update_and_record(output: Any, *args: Any, **kwargs: Any) -> Any:
            self._clear()
            self._pinned_drafts = None
            if self._pins is not None and self._pins.has_any:
                result = args[0] if args else kwargs.get("model_runner_output")
                self._guard(self._note_pinned, output, result)
            outputs = update(output, *args, **kwargs)
            step = self._outstanding.pop(id(output), None)
            if step is not None and output.total_num_scheduled_tokens:
                self._guard(self._record, step, output, outputs)
            return outputs

        return update_and_record

    def _note_pinned(self, output: Any, result: Any) -> None:
        assert self._pins is not None
        self._pinned_drafts = self._pins.note_drafts(output, result)

    def _record(self, number: int, output: Any, outputs: Any) -> None:
        now, before = monotonic(), self._ended
        # A step that follows an idle engine began we know not when.
        self._ended = now if self._scheduler.running else None
        accepted = self._add_up()
        drafts, drafted, pinned, pinned_tokens = self._drafts, self._drafted, 0, 0
        part = None if self._pins is None else self._pins.find_part(self._pinned_drafts, outputs)
        if part is not None:
            pinned, pinned_tokens, verified = part
            drafts -= len(verified)
            drafted -= sum([length for length, _ in verified])
            accepted = _take_off(accepted, [reached for _, reached in verified])
        handed = [len(one.new_token_ids) for each in outputs.values() for one in each.outputs]
        answered = len(handed) - handed.count(0)
        requests, tokens = len(output.num_scheduled_tokens), output.total_num_scheduled_tokens
        verifying = self._sum_scheduled(output)
        k = output.num_spec_tokens_to_schedule
        step = Step(
            number,
            now,
            requests,
            tokens,
            k,
            drafts,
            drafted,
            sum(accepted),
            None if before is None else now - before,
            sum(handed),
            accepted,
            # A request that decodes is given one token and those it verifies.
            max(0, tokens - requests - verifying),
            *self._order.follow(number, k),
            max(0, requests - answered),
            pinned,
            pinned_tokens,
        )
        self.ring.append(step)
        if self.on_drafts is not None and not number % EVERY:
            several = {
                one.request_id
                for each in outputs.values()
                for one in each.outputs
                if len(one.new_token_ids) > 1
            }
            self.on_drafts(output.scheduled_spec_decode_tokens, several)
        self._after_step(step)

    def _sum_scheduled(self, output: Any) -> int:
        """Draft tokens that were scheduled: vLLM's sum, unless it left some of them out."""
        scheduled, stats = output.scheduled_spec_decode_tokens, self._stats
        if (
            self._summed
            and stats is not None
            and stats.num_drafts == len(scheduled)
            and not getattr(output, "num_invalid_spec_tokens", True)
        ):
            return int(stats.num_draft_tokens)
        return sum(map(len, scheduled.values()))

    def _take_sums(self, stats: Any) -> tuple[int, ...]:
        """The same from vLLM's own sums over the step, where it makes them."""
        accepted = tuple(stats.num_accepted_tokens_per_pos[: self._k_max])
        self._drafts, self._drafted = stats.num_drafts, stats.num_draft_tokens
        self.drafts += stats.num_drafts
        # Both have a figure for each of k_max positions.
        self.drafted = list(map(add, self.drafted, stats.num_draft_tokens_per_pos))
        self.accepted = list(map(add, self.accepted, accepted))
        return accepted

    def _make_spec_decoding_stats(self, make: Any) -> Any:
        signature = inspect.signature(make)
        guard = self._guard

        def make_and_count(*args: Any, **kwargs: Any) -> Any:
            stats = self._stats = make(*args, **kwargs)  # once for each request: no more than this
            if self._summed is None and stats is not None:
                self._summed = all(hasattr(stats, name) for name in _SUMS)
            if stats is None or not self._summed:
                guard(self._bind, signature, args, kwargs)
            return stats

        return make_and_count

    def _make_stats(self, make: Any) -> Any:
        """vLLM hands the sums over once a step: seen to be so, it need not be watched per draft."""

        def make_with_sums(*args: Any, **kwargs: Any) -> Any:
            stats = args[0] if args else kwargs.get("spec_decoding_stats")
            if stats is not None and self._summed:
                if stats is self._stats:
                    self._unwrap()
                self._stats = stats
            return make(*args, **kwargs)

        return make_with_sums

    def _bind(self, signature: inspect.Signature, args: Any, kwargs: Any) -> None:
        self._count(**signature.bind(*args, **kwargs).arguments)

    def _count(
        self,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any = None,
        request_id: Any = None,
        **_: Any,
    ) -> None:
        drafted = num_draft_tokens
        if num_invalid_spec_tokens:
            drafted -= num_invalid_spec_tokens.get(request_id, 0)
        if drafted <= 0:
            return
        self._drafts += 1
        self._drafted += drafted
        most = self._k_max
        self._by_length[drafted if drafted < most else most] += 1
        self._by_accepted[num_accepted_tokens if num_accepted_tokens < most else most] += 1


def _take_off(accepted: Sequence[int], reached: Sequence[int]) -> tuple[int, ...]:
    """How many drafts accepted each position without those that accepted so many tokens.

    >>> _take_off((3, 2, 1), [1, 3])
    (1, 1, 0)
    """
    return tuple(
        max(0, count - sum([one > position for one in reached]))
        for position, count in enumerate(accepted)
    )


class StepOrder:
    """Tells what each step verified, from the steps in the order in which they were scheduled.

    `settle` is the number of steps by which the engine's accounting lags behind its
    scheduling: 1, or 2 where the scheduler is asynchronous.

    >>> order = StepOrder()
    >>> [order.follow(step, k) for step, k in ((1, 3), (2, 3), (3, 5))]
    [(0, False), (3, True), (3, False)]
    """

    def __init__(self, settle: int = 1) -> None:
        self._settle = settle
        self._k = 0
        self._same = 0
        self._step: int | None = None

    def follow(self, step: int, k: int) -> tuple[int, bool]:
        """The k of the step before number `step`, and whether k has settled.

        A step that has none before it counts as unsettled.
        """
        verified = self._k
        self._same = self._same + 1 if k == verified else 0
        if self._step is not None and not 0 < step - self._step <= _MOST_MISSED:
            verified, self._same = 0, 0  # another hand chose k in between, or another engine ran
        self._k, self._step = k, step
        return verified, self._same >= self._settle
