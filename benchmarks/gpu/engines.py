"""Engines of the program: started together, shared by its parts, each with its log."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import httpx
from benchmarks.engines import end_process
from benchmarks.gpu.checkout import GENERAL, ROOT, is_installed, join_path, write_distribution
from benchmarks.gpu.checkout import write_own as write_own_entry_points
from benchmarks.gpu.probe import COUNTS_VARIABLE
from benchmarks.gpu.variants import VARIANTS, Setup, Variant, choose_variables, write_config

from specdeck.engine.config.loader import load
from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.launch.command import build_argv, build_environment, installed_plugins
from specdeck.engine.launch.failure_reason import find_reason
from specdeck.engine.launch.launcher import deepen_target
from specdeck.engine.launch.machine import detect_build
from specdeck.engine.launch.ports import find_free
from specdeck.engine.paths import locations

READY_S = 300.0
"""The most that a start may take: compilation and graphs for every k included."""

TAIL = 10
"""Lines of a log that the page shows of an engine that failed; as many that name an error."""

ERROR = re.compile(r"Error\b|error:|Traceback|assert ")

PROBE = "specdeck_probe"


class EngineFailed(Exception):
    """An engine did not start."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a part is told of an engine."""

    role: str
    variant: str
    url: str = ""
    token_file: str = ""
    log: str = ""
    counts: str = ""
    """Where the probe counts; empty without one."""
    start_s: float | None = None
    """From the process to the first answer of /health."""
    failure: str | None = None
    """Why there is none; None where there is."""
    absent: bool = False
    """Whether this machine cannot have one, which is no failure."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the process of a part."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """What `as_json` made."""
        return cls(**data)


def read_tail(log: Path, lines: int = TAIL) -> list[str]:
    """The last lines of a log, and before them the last that name an error; no credentials."""
    if not log.is_file():
        return []
    text = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in text[:-lines] if ERROR.search(line)]
    return [redact(line) for line in (*errors[-lines:], *text[-lines:])]


class Engine:
    """One engine of a variant, as a process."""

    def __init__(self, variant: Variant, setup: Setup) -> None:
        self.variant = variant
        folder = setup.folder
        port = find_free("127.0.0.1")
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{variant.name}.log"
        self.token_file = folder / f"{variant.name}.token"
        self.token_file.write_text(os.urandom(16).hex())
        self.token_file.chmod(0o600)
        self.counts = folder / f"{variant.name}.counts"
        config = load(write_config(variant, setup))
        if config.deepen is not None:
            config = deepen_target(config, locations({**os.environ, "SPECDECK_HOME": str(folder)}))
        build = detect_build()
        variables = self._variables(setup)
        environment = build_environment(
            config, {**os.environ, **variables}, token_file=self.token_file, build=build
        )
        if not variant.plugin:
            environment["VLLM_PLUGINS"] = ""
        command = build_argv(
            config,
            python=sys.executable,
            host="127.0.0.1",
            port=port,
            build=build,
            environment=environment,
        )
        self._began = time.monotonic()
        self.start_s: float | None = None
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _variables(self, setup: Setup) -> dict[str, str]:
        found, folders, names = choose_variables(self.variant, setup), [], installed_plugins()
        if not is_installed():
            write_own_entry_points(setup.folder / "own")
            folders += [setup.folder / "own", ROOT / "src"]
        if self.variant.probe:
            place = setup.folder / "probe"
            write_distribution(place, PROBE, {GENERAL: {PROBE: "benchmarks.gpu.probe:register"}})
            folders += [place, ROOT]
            names.append(PROBE)
            found[COUNTS_VARIABLE] = str(self.counts)
        listed = os.environ.get("VLLM_PLUGINS")
        if listed is not None:
            names = [*listed.split(","), *([PROBE] if self.variant.probe else [])]
        found["VLLM_PLUGINS"] = ",".join(names)
        found["PYTHONPATH"] = join_path(folders, os.environ.get("PYTHONPATH"))
        return found

    def wait(self, until: float) -> None:
        """Waits for the first answer; raises EngineFailed at its end, or at `until`, monotonic."""
        while self.start_s is None:
            code = self.process.poll()
            if code is not None:
                reason = find_reason(self.log.read_text(errors="replace"), code)
                raise EngineFailed(redact(reason))
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=2, trust_env=False).is_success:
                    self.start_s = time.monotonic() - self._began
                    return
            if time.monotonic() > until:
                raise EngineFailed(f"not ready after {time.monotonic() - self._began:.0f} s")
            time.sleep(0.25)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Ends it with its workers."""
        end_process(self.process)

    def standing(self, role: str) -> Standing:
        """What a part that uses it in this role is told."""
        return Standing(
            role,
            self.variant.name,
            self.url,
            str(self.token_file),
            str(self.log),
            str(self.counts) if self.variant.probe else "",
            self.start_s,
        )


class StartedEngine(Protocol):
    """An engine that was started, as the fleet sees it."""

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""

    def wait(self, until: float) -> None:
        """Until it is ready; raises EngineFailed."""

    def stop(self) -> None:
        """Ends it."""

    def standing(self, role: str) -> Standing:
        """What a part is told of it."""


class Fleet:
    """The engines that run, by variant: parts share them, and one that died is started again."""

    def __init__(
        self, setup: Setup, *, start: Callable[[Variant, Setup], StartedEngine] = Engine
    ) -> None:
        self._setup = setup
        self._start = start
        self._engines: dict[str, StartedEngine] = {}
        self._failures: dict[str, str] = {}
        """Why a variant does not start: it is not tried again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep(())

    def provide(self, roles: Sequence[str], until: float) -> dict[str, Standing]:
        """An engine for each role, started with the others if there is none; or why not."""
        found: dict[str, Standing] = {}
        while open_roles := [role for role in roles if role not in found]:
            starting: dict[str, StartedEngine] = {}
            for role in open_roles:
                standing, variant = self._look(role)
                if standing is not None:
                    found[role] = standing
                elif variant is not None and variant.name not in starting:
                    starting[variant.name] = self._start(variant, self._setup)
            for name, engine in starting.items():
                self._receive(name, engine, until)
        return found

    def _look(self, role: str) -> tuple[Standing | None, Variant | None]:
        """What is known of a role's engine, or the variant to start for it."""
        variants = self._setup.find_variants(role)
        if isinstance(variants, str):
            return Standing(role, "", failure=variants, absent=True), None
        for variant in variants:
            engine = self._engines.get(variant.name)
            if engine is not None and engine.is_alive:
                return engine.standing(role), None
            if variant.name not in self._failures:
                return None, variant
        reasons = [f"{variant.name}: {self._failures[variant.name]}" for variant in variants]
        log = str(self._setup.folder / f"{variants[0].name}.log")
        return Standing(role, variants[0].name, log=log, failure="; ".join(reasons)), None

    def _receive(self, name: str, engine: StartedEngine, until: float) -> None:
        try:
            # The small form is no measurement: it takes what a busy machine takes.
            most = until if self._setup.small else min(until, time.monotonic() + READY_S)
            engine.wait(most)
        except EngineFailed as error:
            engine.stop()
            self._failures[name] = str(error)
        else:
            self._engines[name] = engine

    def keep(self, roles: Sequence[str]) -> None:
        """Ends every engine that plays none of these roles."""
        wanted: set[str] = set()
        for role in roles:
            variants = self._setup.find_variants(role)
            wanted |= set() if isinstance(variants, str) else {v.name for v in variants}
        for name in [name for name in self._engines if name not in wanted]:
            self._engines.pop(name).stop()


@contextlib.contextmanager
def start_alone(name: str, setup: Setup, until: float) -> Iterator[Engine]:
    """A fresh engine for the block; raises EngineFailed when it does not start.

    In a folder of its own, where it meets neither log nor token of a shared one.
    """
    folder = setup.folder / "alone"
    folder.mkdir(exist_ok=True)
    engine = Engine(VARIANTS[name], replace(setup, folder=folder))
    try:
        engine.wait(until)
        yield engine
    finally:
        engine.stop()
