"""Hours of everything at once: consoles, bad links, killed engines, and no harm done.

    python -m benchmarks.soak [--minutes 60] [--streams 4] [--seed 1]

A real engine answers streams of greedy requests. Two consoles reach it over a link that
delays, stalls and cuts, and get random keys and sizes; one of them is killed again and again,
and so is the engine. The other one begins with every screen, once. Looked at in the end: every
request answered with the tokens that target-only gives, near ties aside (or the engine was killed
meanwhile), the memory of the console that lived, processes left over, and changes that the engine
made and the audit log has not, or the other way round. Exit code 1 where one of them is not as it
should be.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from benchmarks.engines import table
from benchmarks.greedy import GreedyReference, complete, prompts, take_references
from benchmarks.slow_link import SlowLink
from benchmarks.soak_audit import (
    WRITTEN_S,
    MadeChange,
    Witness,
    compare_with_log,
    gather_changes,
)
from benchmarks.soak_ends import KEPT, MOST_ENDS, ConsoleEnd, read_report, read_words
from tests.support.command import Command
from tests.support.live_engine import LIMITS, LiveEngine
from tests.support.pseudo_terminal import PseudoTerminal

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.paths import locations
from specdeck.engine.protocol.messages import Change
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.database import Store

KEYS = [*"+-+-+-0123456789tabzcTwpdfugver/nm x?[]", "\t", "\r", "\r", "\x1b", "\x1b", "\x1b"]
"""Random ones; none of them quits, and none saves a file where nobody asked for it."""
TOUR = [
    key
    for room in (
        "p",
        "w",
        "T",
        "?",
        "e",
        "e/",
        "g",
        "dp",
        "dv",
        "db",
        "fv",
        "f/",
        "fe",
        "u",
        "u\r",
        "r/",
        "y",
    )
    for key in (*room, "\x1b", "\x1b", "\x1b")
]
"""Each screen and dialog once, and back: what Python keeps of the first time is no leak."""
SIZES = ("120x40", "80x24", "100x30", "40x10", "200x60")
SETTLED = 1 / 6
"""The share of the time after which memory should be flat: ten minutes of an hour."""
MOST_GROWTH = 0.02
SAMPLE_S = 5.0
WAITED_S = 600.0
"""For an answer: a machine of two cores that others use as well is slow, and nothing is lost."""
NO_ENGINE, START_S = 3, 30.0
"""The exit code of a console that finds no engine, and how long it looks over a bad link."""
LIVES = "operator-0"
"""The name of the console that is never killed."""


@dataclass(slots=True)
class Soak:
    """What is going on, and what came of it."""

    specdeck: Command
    engine: LiveEngine
    link: SlowLink
    token_file: Path
    rng: random.Random
    until: float
    is_up: bool = True
    kills: list[float] = field(default_factory=list)
    """Unix times at which an engine was killed."""
    console_kills: int = 0
    deaths: dict[str, float] = field(default_factory=dict)
    """By a console's name: the Unix time at which it was killed, or the soak was over."""
    answers: int = 0
    altered: int = 0
    near_ties: int = 0
    """Others where target-only itself is all but undecided."""
    lost: int = 0
    interrupted: int = 0
    """Requests under way when their engine was killed."""
    keys: int = 0
    refused: int = 0
    """Consoles that found no engine when they were started."""
    ended: list[int] = field(default_factory=list)
    """Exit codes of all others that ended by themselves."""
    ends: list[ConsoleEnd] = field(default_factory=list)
    """The last words of the first of them."""
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the beginning and resident bytes of the console that is never killed."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    async def stream(self, asked: list[list[int]], references: list[GreedyReference]) -> None:
        """Greedy requests, one after the other."""
        async with httpx.AsyncClient(
            base_url=self.engine.url, timeout=WAITED_S, limits=LIMITS, trust_env=False
        ) as http:
            while not self.is_over:
                if not self.is_up:
                    await asyncio.sleep(0.5)
                    continue
                number, killed = self.rng.randrange(len(asked)), len(self.kills)
                try:
                    found = await complete(http, asked[number], "demo")
                except httpx.HTTPError as error:
                    if len(self.kills) > killed or not self.is_up:
                        self.interrupted += 1
                    else:
                        self.lost += 1
                        print(f"lost: {type(error).__name__}: {error}", file=sys.stderr)
                    await asyncio.sleep(0.5)
                    continue
                self.answers += 1
                likeness = references[number].compare(found)
                self.altered += likeness == "altered"
                self.near_ties += likeness == "near tie"

    def open_console(self, who: str) -> PseudoTerminal:
        """A console behind the link, armed, whose operator has a name of its own."""
        arguments = ("attach", self.link.url, "--control", "--admin-token-file",
                     str(self.token_file))  # fmt: skip
        environment = {**self.specdeck.environment, "LOGNAME": who, "SSH_CONNECTION": ""}
        return PseudoTerminal(self.specdeck.line(*arguments), environment, self.rng.choice(SIZES))

    async def operate(self, *, killed: bool) -> None:
        """A console with random keys; one that is to be killed, again and again."""
        began = time.monotonic()
        tour = [] if killed else TOUR[::-1]
        while not self.is_over:
            who = f"operator-{len(self.deaths) + 1}" if killed else LIVES
            console, opened = self.open_console(who), time.monotonic()
            born, written = time.time(), bytearray()
            ends = time.monotonic() + self.rng.uniform(20, 90) if killed else self.until
            next_sample = 0.0
            try:
                while time.monotonic() < min(ends, self.until) and console.process.poll() is None:
                    await asyncio.to_thread(drain, console, written)
                    self._press(console, tour.pop() if tour else self.rng.choice(KEYS))
                    if not killed and time.monotonic() >= next_sample:
                        next_sample = time.monotonic() + SAMPLE_S
                        with suppress(psutil.Error):
                            rss = psutil.Process(console.process.pid).memory_info().rss
                            self.memory.append((time.monotonic() - began, rss))
                if (code := console.process.poll()) is not None:
                    if code == NO_ENGINE and time.monotonic() - opened < START_S:
                        self.refused += 1
                        await asyncio.sleep(2)
                    else:
                        self.ended.append(code)
                        drain(console, written)
                        self._keep_words(who, code, born, bytes(written))
                else:
                    self.console_kills += killed
            finally:
                console.close()
                self.deaths[who] = time.time()

    def _keep_words(self, who: str, code: int, born: float, written: bytes) -> None:
        """What a console that ended by itself wrote last."""
        if len(self.ends) < MOST_ENDS:
            secrets = [self.token_file.read_text(), self.engine.token]
            crashes = locations(self.specdeck.environment).crashes
            words = read_words(written, secrets)
            report = read_report(crashes, born, secrets)
            self.ends.append(ConsoleEnd(who, code, time.time() - born, words, report))

    def _press(self, console: PseudoTerminal, key: str) -> None:
        if self.rng.random() < 0.02:
            console.set_size(self.rng.choice(SIZES))
            console.process.send_signal(signal.SIGWINCH)
        console.press(key)
        self.keys += 1

    async def kill_engines(self, every_s: float) -> None:
        """Kills the engine's first process now and then, and starts another one."""
        while True:
            after = time.monotonic() + self.rng.uniform(0.6, 1.4) * every_s
            if after + 120 > self.until:
                return
            await asyncio.sleep(after - time.monotonic())
            self.is_up = False
            self.kills.append(time.time())
            os.kill(self.engine.pid, signal.SIGKILL)
            await asyncio.sleep(10)
            await asyncio.to_thread(self.engine.clear_away)  # as an operator does after a crash
            await asyncio.to_thread(self.engine.restart)
            write_token(self.token_file, self.engine.token)
            self.is_up = True

    async def tell(self) -> None:
        """How it stands, once a minute."""
        began = time.monotonic()
        while not self.is_over:
            await asyncio.sleep(min(60.0, max(0.0, self.until - time.monotonic())))
            rss = self.memory[-1][1] / 1e6 if self.memory else 0.0
            print(
                f"{(time.monotonic() - began) / 60:.0f} min: {self.answers} answers,"
                f" {self.lost} lost, {self.altered} altered ({self.near_ties} near ties),"
                f" {len(self.kills)} engines and"
                f" {self.console_kills} consoles killed, {len(self.link.changes)} changes,"
                f" {rss:.0f} MB, ended {self.ended}",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def drain(console: PseudoTerminal, written: bytearray) -> None:
    """Reads what the console draws between two keys of a hasty operator; keeps its end."""
    ends = time.monotonic() + 0.4
    while (left := ends - time.monotonic()) > 0:
        written += console.read(left)
    del written[:-KEPT]


def write_token(path: Path, token: str) -> None:
    """The token of the engine that runs, where the consoles look for it."""
    beside = path.with_suffix(".new")
    beside.touch(mode=0o600)
    beside.write_text(token)
    beside.replace(path)


def read_audit(specdeck: Command, url: str) -> list[Action]:
    """Every entry about the engine at `url`, the oldest first."""
    with Store(locations(specdeck.environment).store) as store:
        return list(AuditLog(store).actions(url, limit=10**6))[::-1]


def find_left(home: Path) -> list[str]:
    """Processes of this soak that still run, by their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("SPECDECK_HOME") == str(home):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
    return found


def growth(memory: list[tuple[float, int]], seconds: float) -> float | None:
    """Resident memory at the end over that once it had settled; None of too short a run."""
    tenth = seconds / 10
    settled = [rss for t, rss in memory if SETTLED * seconds <= t < SETTLED * seconds + tenth]
    last = [rss for t, rss in memory if t >= seconds - tenth]
    return statistics.median(last) / statistics.median(settled) - 1 if settled and last else None


def memory_by_tenths(memory: list[tuple[float, int]], seconds: float) -> str:
    """The median of each tenth; – of one without a sample."""
    tenths = [
        [rss for t, rss in memory if n <= 10 * t / seconds < n + 1] for n in range(10)
    ]  # fmt: skip
    return " ".join(f"{statistics.median(one) / 1e6:.0f}" if one else "–" for one in tenths)


async def ask_target_only(engine: LiveEngine, asked: list[list[int]]) -> list[GreedyReference]:
    """What it answers without drafts."""
    client = open_client(engine.url, token=lambda: Secret(engine.token))
    try:
        await client.put(Change(mode="target-only", who="soak"))
        async with httpx.AsyncClient(
            base_url=engine.url, timeout=120, limits=LIMITS, trust_env=False
        ) as http:
            found = await take_references(http, asked)
        await client.put(Change(mode="speculate", who="soak"))
    finally:
        await client.close()
    return found


@dataclass(frozen=True, slots=True)
class AuditFindings:
    """The audit log beside what the engine has done for the consoles."""

    changes: int
    astray: list[MadeChange]
    """Not in the log, and nothing excuses it."""
    cut_short: list[MadeChange]
    """Not in the log, and their console was killed before it could be written."""
    forgotten: list[MadeChange]
    """Not in the log, as their reply was lost and the engine killed before it was asked again."""
    overtaken: list[MadeChange]
    """The same where somebody else's change came before the engine was asked again."""
    invented: list[Action]
    """In the log, and never made."""


def judge_audit(soak: Soak, witness: Witness, entries: list[Action]) -> AuditFindings:
    """Compares the audit log with what was changed; each change that it lacks is in one list."""
    consoles = set(soak.deaths)
    changes = gather_changes(soak.link.changes, witness, soak.kills, consoles)
    missing, invented = compare_with_log(changes, entries)
    found = AuditFindings(len(changes), [], [], [], [], invented)
    for change in missing:
        soon = change.t, change.t + WRITTEN_S
        if soak.deaths[change.who] < soon[1]:
            found.cut_short.append(change)
        elif change.delivered:
            found.astray.append(change)
        elif any(soon[0] <= kill < soon[1] for kill in soak.kills):
            found.forgotten.append(change)
        elif any(soon[0] < other.t < soon[1] and other.who != change.who for other in changes):
            found.overtaken.append(change)
        else:
            found.astray.append(change)
    return found


async def run_soak(
    specdeck: Command, engine: LiveEngine, options: argparse.Namespace
) -> tuple[Soak, AuditFindings]:
    """An hour, or as long as asked: what happened, and what the audit log has of it."""
    asked = prompts(options.seed)
    references = await ask_target_only(engine, asked)
    seconds, rng = options.minutes * 60.0, random.Random(options.seed)
    token_file = specdeck.home / "token"
    write_token(token_file, engine.token)
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(SlowLink(engine.port).open())
        until = time.monotonic() + seconds
        soak = Soak(specdeck, engine, link, token_file, rng, until)
        witness = Witness(engine.url, lambda: len(soak.kills))
        work: list[Callable[[], Awaitable[None]]] = [
            *[lambda: soak.stream(asked, references)] * options.streams,
            lambda: soak.operate(killed=False),
            lambda: soak.operate(killed=True),
            lambda: soak.kill_engines(seconds / 4),
            lambda: link.disturb(random.Random(options.seed + 1), until),
            lambda: witness.look(until),
            soak.tell,
        ]
        await asyncio.gather(*(each() for each in work))
    return soak, judge_audit(soak, witness, read_audit(specdeck, link.url))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the engine ends with us
    with tempfile.TemporaryDirectory(prefix="specdeck-soak-") as folder:
        home = Path(folder)
        os.chdir(home)  # where consoles save what they are asked to
        specdeck = Command(home)
        engine = LiveEngine.start(specdeck)
        try:
            soak, audit = asyncio.run(run_soak(specdeck, engine, options))
        finally:
            engine.clear_away()
        left = find_left(home)
        sys.exit(report(soak, audit, left, options))


def report(soak: Soak, audit: AuditFindings, left: list[str], options: argparse.Namespace) -> int:
    """Prints the table; 1 where a request, a change, a process or memory went astray."""
    for change in audit.astray:
        print(f"not in the audit log: {change}", file=sys.stderr)
    for entry in audit.invented:
        print(f"in the audit log, and not made: {entry}", file=sys.stderr)
    for process in left:
        print(f"left over: {process}", file=sys.stderr)
    seconds = options.minutes * 60
    grown = growth(soak.memory, seconds)
    rows = [
        ["requests answered", str(soak.answers)],
        ["altered", str(soak.altered)],
        ["others, at a near tie of target-only", str(soak.near_ties)],
        ["lost", str(soak.lost)],
        ["interrupted by a kill of the engine", str(soak.interrupted)],
        ["kills of the engine, of a console", f"{len(soak.kills)}, {soak.console_kills}"],
        ["keys, connections cut", f"{soak.keys}, {soak.link.cuts}"],
        ["consoles started while the engine was away", str(soak.refused)],
        ["exit codes of others that ended by themselves", " ".join(map(str, soak.ended)) or "none"],
        ["changes that the engine made for the consoles", str(audit.changes)],
        ["of them not in the audit log", str(len(audit.astray))],
        ["and of a console killed at that moment", str(len(audit.cut_short))],
        ["and whose reply was lost with the engine", str(len(audit.forgotten))],
        ["and whose reply was lost, another change in its place", str(len(audit.overtaken))],
        ["entries of the audit log without a change", str(len(audit.invented))],
        ["console's memory in each tenth of the time, MB", memory_by_tenths(soak.memory, seconds)],
        ["grown since it settled", "unknown" if grown is None else f"{grown:.1%}"],
        ["processes left", str(len(left))],
    ]
    print(table([f"{options.minutes:g} min, {options.streams} streams, seed {options.seed}", ""],
                rows))  # fmt: skip
    for end in soak.ends:
        print("", *end.lines(), sep="\n")
    bad = [soak.altered, soak.lost, soak.ended, audit.astray, audit.invented, left]
    sound = bool(soak.answers) and not any(bad)
    return 0 if sound and grown is not None and grown <= MOST_GROWTH else 1


if __name__ == "__main__":
    main()
