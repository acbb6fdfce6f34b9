"""Requests pinned to a k of their own, so that exact traffic can share an engine.

A request carries `"vllm_xargs": {"specdeck_k": 0}` (0 to k_max). The API server's
process checks the figure, and the scheduler then verifies that many drafts at most for
the request; the drafter still runs its row, so that its KV cache stays in step.

Requests under the config's `exact_models` are pinned to k = 0 by the API server's process,
which knows the name that a request asks for, and counted apart. One under an exact name
that asks for another k of its own is refused: the name is a promise.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from specdeck.engine.plugin.contract import by_loss
from specdeck.engine.plugin.guards import DisableOnError
from specdeck.engine.plugin.take_hold import find_gaps
from specdeck.engine.protocol.messages import EXACT_VARIABLE, shorten

KEY = "specdeck_k"
EXACT = "specdeck_exact"
"""Put beside the key by the API server's process on requests under an exact name."""


def pinned_k(extra_args: Mapping[str, Any] | None, k_max: int) -> int | None:
    """The k that a request asks for; None when it asks for none.

    Raises ValueError on anything but 0 to `k_max`.

    >>> pinned_k({"specdeck_k": 0}, k_max=5), pinned_k({}, k_max=5)
    (0, None)
    """
    if not extra_args or KEY not in extra_args:
        return None
    k = extra_args[KEY]
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= k_max:
        raise ValueError(f"{KEY} requires a whole number from 0 to {k_max}, not {shorten(k)}")
    return k


def guard(engine_client: Any, k_max: int, on_exact: Callable[[], None] | None = None) -> None:
    """Has the API server's process refuse requests with a k that cannot be.

    `on_exact` is called for every request under an exact name; None where there are no such
    names, and a request that says it is under one makes it up.

    vLLM ignores keys of vllm_xargs that it does not know, and a pin that was silently
    ignored would be worse than none.
    """
    processor = getattr(engine_client, "input_processor", None)
    if processor is None:
        return
    process, refused = processor.process_inputs, _validation_error()

    @functools.wraps(process)
    def check_and_process(
        request_id: Any, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        extra = getattr(params, "extra_args", None)
        try:
            pinned_k(extra, k_max)
        except ValueError as error:
            raise refused(str(error)) from None
        if extra and EXACT in extra:
            if on_exact is None:
                del extra[EXACT]
            else:
                on_exact()
        return process(request_id, prompt, params, *args, **kwargs)

    processor.process_inputs = check_and_process


def _validation_error() -> type[Exception]:
    """What vLLM answers with 400 when it comes from within a request."""
    try:
        from vllm.exceptions import VLLMValidationError
    except ImportError:  # before there was one, a ValueError served
        return ValueError
    kind: type[Exception] = VLLMValidationError
    return kind


Drafts = Mapping[str, tuple[int, int]]
"""By request, the tokens of its draft that were verified, and those accepted."""


class PinnedPart(NamedTuple):
    """What of a step is of pinned requests."""

    requests: int
    """Those that were handed tokens."""
    tokens: int
    """The tokens."""
    verified: Sequence[tuple[int, int]]
    """Of each of their drafts the tokens verified, and those accepted."""


class Pins:
    """The pinned requests of one scheduler.

    The engine core's thread pays for them, so nothing here goes through all of them: a step
    looks at those that run, and vLLM's scheduler says which ones have ended.
    """

    def __init__(
        self, scheduler: Any, k_max: int, on_presence: Callable[[], None] = lambda: None
    ) -> None:
        """`on_presence` is called when the first one comes and when the last one has gone."""
        self._scheduler = scheduler
        self._on_presence = on_presence
        self._k_max = k_max
        self._pinned: dict[str, int] = {}
        self._resting: Collection[str] = frozenset()
        """Requests that are to have no drafts for a while, without having asked."""
        self._exact: dict[str, Any] = {}
        """vLLM's own request objects, until they are finished and counted."""
        self._begun: dict[str, Any] = {}
        """Those of them that ran, and so may have tokens."""
        self._counted = 0
        self.exact_requests = 0
        """Requests under exact names so far."""
        self._guard = DisableOnError("pinning requests", on_failure=self._let_go)
        gaps = find_gaps({"Scheduler": scheduler}, "core", modules={})
        self.available = scheduler is not None and "request_k" not in by_loss(gaps)
        if self.available:
            self._wrap("add_request", self._add)
            self._wrap("schedule", self._follow)
            # The plain scheduler is given drafts after a step, the asynchronous one plans
            # for them while it schedules.
            self._wrap("update_draft_token_ids", self._trim)
            if hasattr(scheduler, "_spec_token_placeholders"):
                self._wrap("_update_after_schedule", self._trim)

    def __len__(self) -> int:
        """Pinned requests that are not finished."""
        self._forget_newly_finished()
        return len(self._pinned)

    @property
    def failed(self) -> bool:
        """Whether looking at the requests has failed, so that no pin is obeyed any more."""
        return self._guard.failed

    @property
    def has_any(self) -> bool:
        """Whether a request is pinned or rests, as far as the steps so far have told."""
        return bool(self._pinned or self._resting)

    def note_drafts(self, output: Any, result: Any) -> Drafts | None:
        """The drafts of pinned requests in a step that vLLM's scheduler is about to account for by
        these two; None without any.

        Afterwards it has cut what a request's end has no room for, of the very lists.
        """
        pinned = self._pinned
        if not pinned or result is None:
            return None
        scheduled = output.scheduled_spec_decode_tokens
        invalid = getattr(output, "num_invalid_spec_tokens", None) or {}
        sampled = zip(
            getattr(result, "req_ids", ()), getattr(result, "sampled_token_ids", ()), strict=False
        )
        return {
            one: (len(scheduled[one]) - invalid.get(one, 0), max(0, len(made) - 1))
            for one, made in sampled
            if one in pinned and scheduled.get(one)
        }

    def find_part(self, drafts: Drafts | None, outputs: Any) -> PinnedPart | None:
        """The part that pinned requests had in a step, of which `note_drafts` told; None of one
        without any. `outputs` is what came of it.

        Requests that rest are no part of it: they are left without drafts as theirs were in vain.
        """
        pinned = self._pinned
        if not pinned:
            return None
        tokens = {
            one.request_id: len(one.new_token_ids)
            for each in outputs.values()
            for one in each.outputs
            if one.request_id in pinned and one.new_token_ids
        }
        verified = [found for one, found in (drafts or {}).items() if one in tokens]
        return PinnedPart(len(tokens), sum(tokens.values()), verified) if tokens else None

    @property
    def resting(self) -> int:
        """Requests that have no drafts for a while."""
        return len(self._resting)

    def rest(self, resting: Collection[str]) -> None:
        """Has these requests, and no others, draft nothing until told otherwise."""
        if self.failed:  # it would hold nobody back
            return
        had = self.has_any
        self._resting = frozenset(resting)
        if self.has_any != had:
            self._on_presence()

    @property
    def exact_running(self) -> int:
        """Unfinished requests under exact names."""
        self._forget_newly_finished()
        return len(self._exact)

    @property
    def exact_tokens(self) -> int:
        """Tokens generated for requests under exact names."""
        self._forget_newly_finished()
        return self._counted + sum(map(_tokens, self._begun.values()))

    def _let_go(self) -> None:
        """Holds no request any longer: nothing says when one ends, either."""
        begun = self._begun
        self._pinned, self._exact, self._begun = {}, {}, {}
        self._resting = frozenset()
        self._on_presence()
        self._counted += sum(map(_tokens, begun.values()))

    def _wrap(self, name: str, afterwards: Callable[..., None]) -> None:
        """Has `afterwards` called after the method, with what it returned and was given."""
        original, guard = getattr(self._scheduler, name), self._guard

        @functools.wraps(original)
        def call_then(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            guard(afterwards, result, *args)
            return result

        setattr(self._scheduler, name, call_then)

    def _add(self, _: Any, request: Any, *__: Any) -> None:
        extra = getattr(getattr(request, "sampling_params", None), "extra_args", None)
        # Refused by the API server; one that came past it must not end the engine.
        with suppress(ValueError):
            k = pinned_k(extra, self._k_max)
            if k is not None:
                self._pin(request.request_id, k, exact=k == 0 and EXACT in (extra or ()))

    def _pin(self, request_id: str, k: int, *, exact: bool) -> None:
        # Not the one that was handed over: that may carry on a request that is there already.
        held = self._scheduler.requests.get(request_id)
        if held is None:
            return
        had, self._pinned[request_id] = self.has_any, k
        if not had:
            self._on_presence()
        if exact and self._exact.get(request_id) is not held:
            self._count(request_id)
            self._exact[request_id] = held
            self.exact_requests += 1

    def _trim(self, *_: Any) -> None:
        pinned, resting = self._pinned, self._resting
        if not (pinned or resting):
            return
        for request in self._scheduler.running:
            k = 0 if request.request_id in resting else pinned.get(request.request_id)
            if k is not None and len(request.spec_token_ids) > k:
                # A new list: the asynchronous scheduler shares one among its requests.
                request.spec_token_ids = request.spec_token_ids[:k]

    def _follow(self, output: Any, *_: Any) -> None:
        """Learns what begins and what has ended, as the scheduler tells the workers."""
        if not self._pinned:
            return
        if self._exact:
            for new in output.scheduled_new_reqs:
                if (request := self._exact.get(new.req_id)) is not None:
                    self._begun[new.req_id] = request
        self._forget(output.finished_req_ids)

    def _forget_newly_finished(self) -> None:
        """Lets go of what ended since the last step: an idle engine makes none."""
        if self._pinned:
            self._forget(self._scheduler.finished_req_ids)

    def _forget(self, finished: Iterable[str]) -> None:
        for request_id in finished:
            if request_id in self._pinned and not self._lives(request_id):
                del self._pinned[request_id]
                self._count(request_id)
                if not self.has_any:
                    self._on_presence()

    def _lives(self, request_id: str) -> bool:
        """Whether a finished request's id has been taken by another one."""
        held = self._scheduler.requests.get(request_id)
        return held is not None and not held.is_finished()

    def _count(self, request_id: str) -> None:
        self._begun.pop(request_id, None)
        if (done := self._exact.pop(request_id, None)) is not None:
            self._counted += _tokens(done)


def _tokens(request: Any) -> int:
    return int(getattr(request, "num_output_tokens", 0))


_BASES = (
    ("vllm.entrypoints.serve.engine.serving", "BaseServing"),
    ("vllm.entrypoints.serve.engine.serving", "OpenAIServing"),
    ("vllm.entrypoints.openai.engine.serving", "OpenAIServing"),
)
"""Where vLLM checks a request's model name, the newer places first."""

COMPLETIONS = (
    ("vllm.entrypoints.openai.completion.serving", "OpenAIServingCompletion", "create_completion"),
    ("vllm.entrypoints.openai.chat_completion.serving", "OpenAIServingChat",
     "create_chat_completion"),
)  # fmt: skip
"""Where a request for a completion comes in: module, class and method."""

_ENTRIES = (
    *COMPLETIONS,
    ("vllm.entrypoints.openai.responses.serving", "OpenAIServingResponses", "create_responses"),
)
"""Earlier than the check, so that the request's fingerprint says k0 as well."""

_CHECK = "_check_model"


def exact_models(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The exact names as the launcher handed them over.

    >>> exact_models({"SPECDECK_EXACT_MODELS": '["tools-exact"]'})
    ('tools-exact',)
    >>> exact_models({})
    ()
    """
    try:
        found = json.loads(environment.get(EXACT_VARIABLE) or "[]")
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def mark_exact(request: Any, names: Collection[str], default: str | None) -> str | None:
    """Pins `request` if it asks for an exact name; why it is refused, otherwise None.

    `default` is the name that a request without one means.

    >>> from types import SimpleNamespace
    >>> request = SimpleNamespace(model="exact", vllm_xargs=None)
    >>> mark_exact(request, {"exact"}, None), request.vllm_xargs
    (None, {'specdeck_k': 0, 'specdeck_exact': 1})
    """
    given = _read_arguments(request)
    marks = given.pop(EXACT, None) is not None  # nobody else may say so
    name = getattr(request, "model", None) or default
    if name in names:
        asked = given.get(KEY, 0)
        if asked != 0 or isinstance(asked, bool):
            found = shorten(asked)
            return f"{name} is answered target-only: {KEY} can only be 0 there, not {found}"
        given |= {KEY: 0, EXACT: 1}
        marks = True
    if marks:
        _put_arguments(request, given)
    return None


def _read_arguments(request: Any) -> dict[str, Any]:
    """What `request` has for the scheduler, wherever requests of its kind carry that."""
    parameters = getattr(request, "sampling_params", None)
    if parameters is not None:  # tokens in, tokens out
        given = getattr(parameters, "extra_args", None)
    else:
        given = getattr(request, "vllm_xargs", None)
    return dict(given) if isinstance(given, Mapping) else {}


def _put_arguments(request: Any, given: dict[str, Any]) -> None:
    """A batch of conversations has no field for them: it hands on what it does not know."""
    parameters = getattr(request, "sampling_params", None)
    if parameters is not None:
        parameters.extra_args = given
        return
    with suppress(ValueError, AttributeError):  # takes nothing unknown, and generates nothing
        request.vllm_xargs = given


def mark_exact_requests(names: Collection[str]) -> str | None:
    """Has this process pin requests under `names`; why not, where it cannot be."""

    def mark(serving: Any, request: Any) -> str | None:
        return mark_exact(request, names, _default_name(serving))

    if not _judge_requests(mark, find=import_module):
        return "this vLLM checks model names where specdeck does not know it"
    for module, name, method in _ENTRIES:
        try:
            _wrap_entry(getattr(import_module(module), name), method, names)
        except (ImportError, AttributeError):
            continue  # the check of the name marks it as well, only later
    return None


def refuse_impossible(k_max: int) -> None:
    """Has a k that cannot be refused before anything of an answer is sent.

    `guard` comes too late for a streamed response, whose connection vLLM would tear, and never
    for a beam search: vLLM makes requests of its own for its beams and leaves the key out of
    them. Each of these draws a single token, for which nothing is drafted: a k that can be is not
    exceeded.
    """

    def judge(_: Any, request: Any) -> str | None:
        try:
            pinned_k(_read_arguments(request), k_max)
        except ValueError as error:
            return str(error)
        return None

    _judge_requests(judge, find=sys.modules.get)  # what serves requests is imported by now


_Judge = Callable[[Any, Any], str | None]
"""Why a request to a serving object is refused; None where it is not."""


def _judge_requests(judge: _Judge, *, find: Callable[[str], Any]) -> bool:
    """Has requests refused that `judge` finds something in; False where this vLLM has no place."""
    for module, name in _BASES:
        try:
            _wrap_check(getattr(find(module), name), judge)
        except (ImportError, AttributeError):
            continue
        return True
    return False


def _wrap_check(serving: type[Any], judge: _Judge) -> None:
    """Judges a request where its model's name is looked at: every endpoint does that."""
    check = getattr(serving, _CHECK)

    @functools.wraps(check)
    async def check_and_judge(this: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        error = await check(this, request, *args, **kwargs)
        if error is not None:
            return error
        reason = judge(this, request)
        return None if reason is None else this.create_error_response(reason)

    setattr(serving, _CHECK, check_and_judge)


def _wrap_entry(serving: type[Any], method: str, names: Collection[str]) -> None:
    answer = getattr(serving, method)

    @functools.wraps(answer)
    async def mark_and_answer(this: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        mark_exact(request, names, _default_name(this))  # a refusal is the check's to tell
        return await answer(this, request, *args, **kwargs)

    setattr(serving, method, mark_and_answer)


def _default_name(serving: Any) -> str | None:
    """The first served name."""
    paths = getattr(getattr(serving, "models", None), "base_model_paths", None)
    return str(paths[0].name) if paths else None
