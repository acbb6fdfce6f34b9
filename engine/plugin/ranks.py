"""The data-parallel ranks behind one API server: changed together, or not at all.

Ranks of a dense model know nothing of each other: vLLM runs each as an engine core of its own,
with a scheduler, a drafter and a k. So it is the API server that keeps them alike. A change goes
to the first rank, which may refuse it, and then to all others; where one does not follow, every
rank takes the change back, also one that gets to it later.

Ranks of a mixture of experts step together, and one that drafted more than another would wait
for it in vain. They refuse every change themselves (`capabilities`).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from specdeck.engine.plugin.rank_states import Answer
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change

_ASK_ONE = "_call_utility_async"
"""The engine client's method that asks one engine core, of those in `core_engines`."""

_TURN_S = 1.0
"""How long a change waits for the one before it."""
_BEGIN_S = 3.0
"""From the request on: no rank begins a change later than this."""
_ANSWER_S = 3.4
"""From the request on: what a rank has not answered by then, it did not do."""
_BACK_S = 0.9
"""To take it back: a client waits 5 s in all."""

_RETRY_S = 0.005


def find_obstacle(engine_client: Any, ranks: int) -> str | None:
    """Why the ranks behind this client cannot be changed together; None where they can."""
    core = getattr(engine_client, "engine_core", None)
    reached = len(getattr(core, "core_engines", ()))
    if not hasattr(core, _ASK_ONE):
        return f"the engine client has no {_ASK_ONE}"
    if reached != ranks:
        return f"this API server reaches {reached} of {ranks} data-parallel ranks"
    return None


class Turns:
    """Lets one change at a time through, whichever API server it comes to."""

    def __init__(self, file: int | None = None) -> None:
        """`file` is open, and the same one for all API servers; None where there is one."""
        self._file = file
        self._here = asyncio.Lock()

    @asynccontextmanager
    async def take(self, patience_s: float) -> AsyncIterator[None]:
        """Its turn while the block runs; raises TimeoutError where it does not come in time."""
        async with asyncio.timeout(patience_s):
            await self._here.acquire()
        try:
            async with asyncio.timeout(patience_s):
                await self._take_file()
            try:
                yield
            finally:
                if self._file is not None:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._here.release()

    async def _take_file(self) -> None:
        while self._file is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_RETRY_S)
            else:
                return


class Ranks:
    """The ranks behind an engine client, in their order."""

    def __init__(self, client: Any, turns: Turns) -> None:
        """`client` is vLLM's of its engine cores, in which `find_obstacle` found none."""
        self._client = client
        self._turns = turns

    def __len__(self) -> int:
        return len(self._client.core_engines)

    async def ask(self, rank: int, command: str, payload: Any) -> Answer:
        """What one rank answers; raises what vLLM's client does."""
        ask, engine = getattr(self._client, _ASK_ONE), self._client.core_engines[rank]
        answer: Answer = json.loads(
            await ask("specdeck", command, json.dumps(payload), engine=engine)
        )
        return answer

    async def change(self, change: Change) -> Answer:
        """Changes every rank alike, or none.

        The first one's answer, with what each has in force. Raises Refusal where a rank does
        not follow, once those that did were told to take it back.
        """
        began = time.monotonic()
        try:
            async with self._turns.take(_TURN_S):
                return await self._change(change, began)
        except TimeoutError:
            raise Refusal(503, "stalled", "another change is under way") from None

    async def _change(self, change: Change, began: float) -> Answer:
        mark, asked = secrets.token_hex(8), change.as_json()
        waited = time.monotonic() - began
        payload = {"change": asked, "until": time.time() + _BEGIN_S - waited, "mark": mark}
        (first,) = await self._ask_change([0], payload, _ANSWER_S - waited)
        if _is_refused(first):
            return first  # it knows why, and nobody else was asked
        answers = [first]
        if "error" not in first:
            asked.pop("expect_version", None)  # the first one's is what clients go by
            left = _ANSWER_S - (time.monotonic() - began)
            answers += await self._ask_change(range(1, len(self)), payload, left)
        fault = _find_fault(answers)
        if fault is None:
            return _merge(answers)
        back = await self._ask_some(range(len(self)), "take_back", {"mark": mark}, _BACK_S)
        stuck = [str(rank) for rank, answer in enumerate(back) if _is_refused(answer)]
        if stuck:
            words = f"{fault}; rank {', '.join(stuck)} could not, and the ranks differ"
            raise Refusal(503, "ranks", words, "set k and mode again, or restart the engine")
        raise fault

    async def _ask_change(
        self, ranks: Sequence[int], payload: Mapping[str, Any], patience_s: float
    ) -> list[Answer]:
        """As `_ask_some`; a rank that says late before it can be has another clock."""
        answers = await self._ask_some(ranks, "change", payload, patience_s)
        left = payload["until"] - time.time()
        return [
            _blame_clock(rank, left) if left > 0 and _is_late(answer) else answer
            for rank, answer in zip(ranks, answers, strict=True)
        ]

    async def _ask_some(
        self, ranks: Iterable[int], command: str, payload: Mapping[str, Any], patience_s: float
    ) -> list[Answer]:
        """What each of `ranks` answers, or an error in its place."""
        tasks = [asyncio.create_task(self.ask(rank, command, payload)) for rank in ranks]
        await asyncio.wait(tasks, timeout=max(0.0, patience_s))
        return [_outcome(task, patience_s) for task in tasks]


def _outcome(task: asyncio.Task[Answer], patience_s: float) -> Answer:
    """What came of asking a rank; where that is unknown, it may get to it later."""
    if not task.done():
        task.cancel()
        refusal = Refusal(503, "stalled", f"it has not answered for {patience_s:.1f} s")
    elif (error := task.exception()) is not None:
        refusal = Refusal(503, "failed", f"it could not be asked: {error}")
    else:
        return task.result()
    return {**refusal.as_json(), "status": refusal.status, "unknown": True}


def _is_refused(answer: Answer) -> bool:
    """Whether a rank did not do what it was asked, and says so itself."""
    return "error" in answer and not answer.get("unknown")


def _is_late(answer: Answer) -> bool:
    return _is_refused(answer) and bool(answer["error"]["code"] == "late")


def _blame_clock(rank: int, seconds: float) -> Answer:
    """The refusal of a rank whose host is ahead: its clock had passed the end of the change
    `seconds` before this host's did."""
    words = f"the clock of rank {rank}'s host is at least {seconds:.1f} s ahead of the API server's"
    remedy = (
        f"set the clocks of all hosts of the engine by one time service, less than {_BEGIN_S:.0f} s"
        " apart: `timedatectl` on a host shows whether it follows one"
    )
    refusal = Refusal(503, "clocks", words, remedy)
    return {**refusal.as_json(), "status": refusal.status}


def _find_fault(answers: Sequence[Answer]) -> Refusal | None:
    """Why not all ranks have what the first one has; None where they do."""
    wanted = answers[0].get("applied")
    for rank, answer in enumerate(answers):
        if "error" in answer:
            error = answer["error"]
            words = f"every rank takes the change back, since rank {rank} did not follow: "
            return Refusal(
                answer["status"], error["code"], words + error["message"], error.get("remedy")
            )
        if answer["applied"] != wanted:
            words = f"every rank takes the change back, since rank {rank} applied it differently"
            return Refusal(503, "failed", words)
    return None


def _merge(answers: Sequence[Answer]) -> Answer:
    """The first rank's answer, with everybody's notices and what each has in force."""
    notices = dict.fromkeys(notice for answer in answers for notice in answer["notices"])
    ranks = [
        {"rank": rank, "applied": answer["applied"], "version": answer["version"],
         "step": answer["step"]}
        for rank, answer in enumerate(answers)
    ]  # fmt: skip
    return {**answers[0], "notices": list(notices), "ranks": ranks}
