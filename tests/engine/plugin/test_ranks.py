"""Changes of several data-parallel ranks, each a real control over an engine made by hand."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.engine_core import BUILD, Clock, FakeCore, make_control

from specdeck.engine.plugin import ranks as module
from specdeck.engine.plugin.control import answer_call
from specdeck.engine.plugin.rank_states import merge_states
from specdeck.engine.plugin.ranks import Ranks, Turns, find_obstacle
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change, EngineState

Call = tuple[int, str, str]


@dataclass
class Cores:
    """vLLM's client of some ranks: it asks each of them, as long as they listen."""

    engines: list[FakeCore] = field(default_factory=lambda: [FakeCore(), FakeCore()])
    clock: Clock = field(default_factory=Clock)
    stalled: set[int] = field(default_factory=set)
    """Ranks that get to nothing."""
    mute: set[int] = field(default_factory=set)
    """Ranks that do what they are asked and are not heard."""
    unread: list[Call] = field(default_factory=list)
    asked: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.core_engines = [bytes([rank]) for rank in range(len(self.engines))]
        self._cores = [
            SimpleNamespace(_specdeck_control=make_control(engine, self.clock))
            for engine in self.engines
        ]
        for rank in range(len(self.engines)):
            self.answer(rank, "join", "null")

    async def _call_utility_async(
        self, method: str, command: str, payload: str, *, engine: bytes
    ) -> str:
        assert method == "specdeck"
        rank = engine[0]
        await asyncio.sleep(0)
        if rank in self.stalled:
            self.unread.append((rank, command, payload))
            await asyncio.Event().wait()
        answer = self.answer(rank, command, payload)
        if rank in self.mute:
            await asyncio.Event().wait()
        return answer

    def answer(self, rank: int, command: str, payload: str) -> str:
        self.asked.append((rank, command))
        return answer_call(self._cores[rank], command, payload)

    def wake(self) -> None:
        """Has the stalled ranks get to everything, in its order."""
        self.stalled.clear()
        for rank, command, payload in self.unread:
            self.answer(rank, command, payload)

    def state(self) -> EngineState:
        """Of all ranks."""
        ranks = range(len(self.engines))
        return EngineState.from_json(
            merge_states([json.loads(self.answer(rank, "state", "null")) for rank in ranks])
        )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not wait as long as an operator would."""
    for name, seconds in (("_TURN_S", 0.1), ("_ANSWER_S", 0.05), ("_BACK_S", 0.05)):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that gets to a change later has no time left to begin it."""
    monkeypatch.setattr(module, "_BEGIN_S", -1.0)


def together(cores: Cores) -> Ranks:
    return Ranks(cores, Turns())


def settings(cores: Cores) -> set[tuple[Any, ...]]:
    """What the ranks have in force: of one kind where they are alike."""
    return {(one.k, one.mode, one.fallback, one.breaker) for one in cores.state().ranks}


async def test_a_change_is_answered_when_every_rank_has_it() -> None:
    cores = Cores([FakeCore(), FakeCore(), FakeCore()])
    answer = await together(cores).change(Change(k=3, who="ann"))
    assert [engine.k for engine in cores.engines] == [3, 3, 3]
    assert answer["applied"] == {"k": 3}
    assert [(one["rank"], one["applied"]) for one in answer["ranks"]] == [
        (rank, {"k": 3}) for rank in range(3)
    ]


async def test_what_the_first_rank_refuses_nobody_else_is_asked() -> None:
    cores = Cores()
    answer = await together(cores).change(Change(k=99))
    assert answer["error"]["code"] == "k_max"
    assert (1, "change") not in cores.asked
    assert [engine.k for engine in cores.engines] == [5, 5]


async def test_the_version_that_is_expected_is_the_first_ranks() -> None:
    cores = Cores()
    await together(cores).change(Change(k=4))
    cores.answer(1, "change", json.dumps({"change": {"k": 5}, "until": 1e12}))
    version = cores.state().version
    assert {one.version for one in cores.state().ranks} != {version}
    await together(cores).change(Change(k=2, expect_version=version))
    assert [engine.k for engine in cores.engines] == [2, 2]
    answer = await together(cores).change(Change(k=1, expect_version=version))
    assert answer["status"] == 409


@dataclass
class HostsApart(Cores):
    """The last rank is on a host whose clock is ahead."""

    ahead_s: float = 0.0

    def answer(self, rank: int, command: str, payload: str) -> str:
        told = json.loads(payload)
        if command == "change" and rank == 1:
            told["until"] -= self.ahead_s
        return super().answer(rank, command, json.dumps(told))


async def test_a_host_whose_clock_is_ahead_is_named() -> None:
    """Each change was refused as late, whatever the operator did."""
    cores = HostsApart(ahead_s=60.0)
    with pytest.raises(Refusal, match=r"the clock of rank 1's host is at least \d\.\d s") as found:
        await together(cores).change(Change(k=3))
    assert found.value.code == "clocks"
    assert str(found.value.remedy).endswith("`timedatectl` on a host shows whether it follows one")
    assert settings(cores) == {(5, "speculate", "warm", "closed")}
    assert (await together(HostsApart(ahead_s=1.0)).change(Change(k=3)))["applied"] == {"k": 3}


async def test_a_change_that_was_late_by_both_clocks_is_late(late: None) -> None:
    answer = await together(Cores()).change(Change(k=3))
    assert answer["error"]["code"] == "late"


async def test_a_rank_that_fails_has_every_rank_take_the_change_back() -> None:
    cores = Cores()
    await together(cores).change(Change(k=2))
    cores.engines[1].broken = True
    with pytest.raises(Refusal, match=r"since rank 1 did not follow: .* a worker is gone"):
        await together(cores).change(Change(mode="target-only", fallback="cold"))
    assert settings(cores) == {(2, "speculate", "warm", "closed")}
    assert [engine.k for engine in cores.engines] == [2, 2]
    assert [call for call in cores.engines[0].calls if call[0] == "skip"] == [
        ("skip", True),
        ("skip", False),
    ]


class Stuck(FakeCore):
    """A core whose drafter can be left out, and not taken back in."""

    def skip_drafter(self, on: bool) -> None:
        """As in the contract; raises RuntimeError for the way back."""
        if not on:
            raise RuntimeError("a worker is gone")
        super().skip_drafter(on)


async def test_a_rank_that_cannot_take_a_change_back_is_named() -> None:
    cores = Cores([Stuck(), FakeCore(broken=True)])
    with pytest.raises(Refusal, match="rank 0 could not, and the ranks differ"):
        await together(cores).change(Change(mode="target-only", fallback="cold"))


@pytest.mark.usefixtures("impatient", "late")
async def test_a_rank_that_stalls_changes_nothing_when_it_gets_to_it() -> None:
    cores = Cores()
    await Ranks(cores, Turns()).ask(0, "state", None)
    cores.stalled = {1}
    answer = await together(cores).change(Change(k=3))
    assert answer["error"]["code"] == "late"  # the first rank was too late as well
    assert [engine.k for engine in cores.engines] == [5, 5]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("which", ["stalled", "mute"])
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_rank_that_is_not_heard_has_every_rank_take_the_change_back(
    which: str, rank: int
) -> None:
    cores = Cores()
    setattr(cores, which, {rank})
    with pytest.raises(Refusal, match=f"since rank {rank} did not follow: it has not answered"):
        await together(cores).change(Change(k=3))
    cores.mute.clear()
    cores.wake()
    assert settings(cores) == {(5, "speculate", "warm", "closed")}
    assert [engine.k for engine in cores.engines] == [5, 5]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("change", [
    Change(k=1, lease_s=60.0), Change(renew=True, lease_s=900.0), Change(cancel=True),
    Change(mode="target-only"),
])  # fmt: skip
async def test_a_lease_is_as_it_was_when_a_change_was_taken_back(change: Change) -> None:
    cores = Cores()
    await together(cores).change(Change(k=2, lease_s=30.0))
    cores.clock.now += 10
    cores.mute = {1}
    with pytest.raises(Refusal):
        await together(cores).change(change)
    cores.mute.clear()
    for rank in (0, 1):
        found = json.loads(cores.answer(rank, "state", "null"))
        assert (found["k"], found["mode"]) == (2, "speculate")
        assert found["lease"] == {"seconds_left": 20.0, "k": 5, "mode": "speculate"}
    cores.clock.now += 20
    assert settings(cores) == {(5, "speculate", "warm", "closed")}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "before", [None, Change(breaker="open"), Change(breaker="open", probe=True)]
)
@pytest.mark.parametrize("change", [Change(breaker="open"), Change(breaker="closed")])
async def test_the_breaker_is_as_it_was_when_a_word_to_it_was_taken_back(
    before: Change | None, change: Change
) -> None:
    cores = Cores()
    if before is not None:
        await together(cores).change(before)
    was = settings(cores)
    cores.mute = {1}
    with pytest.raises(Refusal):
        await together(cores).change(change)
    assert settings(cores) == was
    assert len(was) == 1


async def test_changes_through_two_api_servers_do_not_cross(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    path.touch()
    cores = Cores()
    with path.open("rb") as one, path.open("rb") as other:
        servers = [Ranks(cores, Turns(file.fileno())) for file in (one, other)]
        for number in range(20):
            ks = (number % 5, (number + 2) % 5)
            await asyncio.gather(
                *(server.change(Change(k=k)) for server, k in zip(servers, ks, strict=True))
            )
            assert len({engine.k for engine in cores.engines}) == 1
    order = [rank for rank, command in cores.asked if command == "change"]
    assert order == [0, 1] * 40


@pytest.mark.usefixtures("impatient")
async def test_a_change_that_waits_for_another_one_for_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    path.touch()
    cores = Cores()
    with path.open("rb") as one, path.open("rb") as other:
        async with Turns(other.fileno()).take(1.0):
            with pytest.raises(Refusal, match="another change is under way"):
                await Ranks(cores, Turns(one.fileno())).change(Change(k=1))
        assert (await Ranks(cores, Turns(one.fileno())).change(Change(k=1)))["applied"] == {"k": 1}


async def test_a_rank_among_others_chooses_nothing_by_itself() -> None:
    core = FakeCore()
    orchestration = {"adaptive_draft": True, "policy": "goodput", "min_draft_length": 1}
    control = make_control(core, Clock(), orchestration)
    assert control.state().policy == "goodput"
    control.join()
    control.join()
    state = control.state()
    assert state.policy == "fixed"
    assert not control.tuning().breaker.automatic
    able = {one.name: one for one in state.capabilities}
    for name in ("trial", "policy.threshold", "policy.goodput"):
        assert able[name].reason == "each data-parallel rank would judge and choose k on its own"
    assert able["live_k"].available
    assert able["breaker"].available
    for change in (Change(policy="goodput"), Change(parameters={"breaker.automatic": "always"}),
                   Change(k=1, judge=True, lease_s=9.0)):  # fmt: skip
        with pytest.raises(Refusal, match="on its own"):
            control.change(change)


async def test_ranks_that_step_together_refuse_every_change() -> None:
    build = replace(BUILD, data_parallel=2, moe=True)
    cores = Cores([FakeCore(build=build), FakeCore(build=build)])
    answer = await together(cores).change(Change(k=1))
    assert (answer["status"], answer["error"]["code"]) == (501, "live_k")
    assert "must agree on k" in answer["error"]["message"]


@pytest.mark.parametrize(("reached", "said"), [(2, None), (1, "reaches 1 of 2")])
def test_ranks_behind_another_api_server_are_not_changed(reached: int, said: str | None) -> None:
    cores = Cores([FakeCore() for _ in range(reached)])
    found = find_obstacle(SimpleNamespace(engine_core=cores), 2)
    assert (found is None) if said is None else (said in (found or ""))


def test_a_client_that_cannot_ask_one_rank_is_an_obstacle() -> None:
    core = SimpleNamespace(core_engines=[b"0", b"1"])
    assert "_call_utility_async" in (find_obstacle(SimpleNamespace(engine_core=core), 2) or "")
