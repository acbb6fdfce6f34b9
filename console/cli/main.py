"""The `specdeck` command: finds the command asked for, and turns errors into one line.

Exit codes: 0 good, 1 a check failed, 2 wrong usage or config, 3 the engine cannot be
reached, or it or this machine cannot do it, 70 specdeck itself failed, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from specdeck.console.cli.first_and_last import INTERRUPTED, exit_at_signals
from specdeck.console.cli.output import (
    discard_stdout,
    emit,
    has_data,
    log,
    log_what_libraries_say,
    print_lines,
)
from specdeck.console.cli.signals import exit_interrupted, interrupt_at_signals
from specdeck.engine.client.secret import hide_secrets
from specdeck.engine.errors import ConfigError, SpecdeckError, UsageError, find_shortage
from specdeck.engine.files import NO_ROOM

if TYPE_CHECKING:
    from specdeck.console.cli.typed_credentials import TypedCredentials

_LOST = {*NO_ROOM, errno.EFBIG, errno.EIO}
"""What becomes of output that its place has no room for; no file is named then."""

COMMANDS = {
    "demo": "The shipped model pair on a real engine, with load, and the console.",
    "run": "Start an engine from a config, then the console.",
    "attach": "The console on engines that already run.",
    "watch": "Samples of an engine, one line each.",
    "record": "Record engines into black boxes, without a console.",
    "set": "Change k, mode or policy of a running engine.",
    "sweep": "Measure every k on live traffic and report the fastest.",
    "why": "Rank the causes of low acceptance or speed, and say what is ruled out.",
    "check": "Compare an engine's speculative path with its target, token by token.",
    "gate": "Compare an engine with a saved baseline before an upgrade goes live.",
    "fingerprint": "Name the serving path, pin it, and report what changed.",
    "incident": "What happened to an engine, in one file to send on.",
    "export": "What was recorded of an engine as CSV.",
    "replay": "The console on what was recorded, without the engine.",
    "ps": "The engines that specdeck started.",
    "stop": "Stop an engine that specdeck started, with all its processes.",
    "doctor": "Check this machine, a config or an engine.",
    "load": "Put load on an engine until interrupted.",
}
"""What `--help` says of each; the modules behind them are not imported for that."""

_SHARED = {"demo": "run", "run": "run", "ps": "processes", "stop": "processes"}
"""Modules with several commands, each under its own name; any other module has its `command`."""


class Lazy(click.Group):
    """A group whose commands live in modules that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of a session, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"specdeck.console.cli.{_SHARED.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name if cmd_name in _SHARED else "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; one that is mistyped is told with the nearest there is."""
        if (name := args[0]) not in COMMANDS:
            from difflib import get_close_matches  # for a wrong word alone

            if near := get_close_matches(name, COMMANDS, n=1):
                raise click.UsageError(f"No such command {name!r}, did you mean {near[0]!r}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        from specdeck import __version__

        print_lines(f"specdeck {__version__}")
        ctx.exit()


group = Lazy(
    "specdeck",
    help="A terminal operations console for vLLM's speculative decoding.",
    epilog="Exit codes: 0 good, 1 a check failed, 2 wrong usage or config, "
    "3 the engine cannot be reached or cannot do it, 70 specdeck itself failed, 130 interrupted.",
    params=[
        # Taken out by `outcome` wherever it stands; here for the help.
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            help="Show a traceback when something fails; before or after the command.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version and exit.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its documented code."""
    _open_closed_streams()
    log_what_libraries_say()
    try:
        interrupt_at_signals()
        code = outcome(sys.argv[1:] if arguments is None else arguments)
        exit_at_signals()
    except KeyboardInterrupt:  # while an error was told
        code = INTERRUPTED
    if code == INTERRUPTED:
        exit_interrupted()
    sys.exit(code)


def outcome(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; whatever goes wrong is one line on stderr.

    With `--json` it is an object on stdout as well, unless data stands there already.
    """
    debug = "--debug" in arguments or bool(os.environ.get("SPECDECK_DEBUG"))
    words = [word for word in arguments if word != "--debug"]
    context: click.Context | None = None
    try:
        # Not group.main: it ends the process itself on a closed pipe.
        context = group.make_context("specdeck", words)
        with context:
            code = group.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _close_pipe()
    except click.exceptions.NoArgsIsHelpError as error:
        return _print_help(error.format_message())
    except click.ClickException as error:
        failure: SpecdeckError = _from_click(error)
        trace = traceback.format_exc()
    except SpecdeckError as error:
        failure, trace = error, traceback.format_exc()
    except OSError as error:
        failure, trace = _from_system(error), traceback.format_exc()
    except Exception as error:  # noqa: BLE001  # the last line of defence: no traceback unasked
        if _is_interruption(error):
            return INTERRUPTED
        failure, trace = find_shortage(error) or _defect(error), traceback.format_exc()
    from specdeck.console.cli.typed_credentials import TypedCredentials  # of failures alone

    typed = TypedCredentials(words)
    if debug:
        for line in typed.hide(hide_secrets(trace)).rstrip().split("\n"):
            log(f"  {line}")  # what stands at the margin is specdeck's own word
    is_first = not (context and has_data(context))
    return _fail(failure, typed, as_json="--json" in words and is_first)


def _fail(failure: SpecdeckError, typed: TypedCredentials, *, as_json: bool) -> int:
    """Says what went wrong, a line for each error; returns the exit code."""
    for error in failure.errors if isinstance(failure, ConfigError) else (failure,):
        log(f"specdeck: {typed.hide(' '.join(error.line().split()))}")
    if as_json:
        with suppress(OSError):
            emit({"error": typed.hide_all(failure.as_json())})
    return failure.exit_code


def _from_click(error: click.ClickException) -> UsageError:
    """What click found wrong, as an error of specdeck's; click has 1 for a file it cannot open."""
    message = error.format_message().rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return UsageError(message, remedy=f"see '{error.ctx.command_path} --help'")
    return UsageError(message)


def _from_system(error: OSError) -> SpecdeckError:
    """What the system refused, as an error of specdeck's.

    A name that no file can have, a folder that is closed to the user and a disk that is full
    are the world's; what else fails is a defect.
    """
    reason = (error.strerror or type(error).__name__).lower()
    if (shortage := find_shortage(error)) is not None:  # whichever file was the next
        return shortage
    if error.filename is not None:
        remedy = "make room there" if error.errno in NO_ROOM else "check the path"
        return UsageError(f"{str(error.filename)[:200]}: {reason}", remedy=remedy)
    if error.errno == errno.ENOENT and _is_folder_gone():  # getcwd has no name for it
        return UsageError("the current folder is gone", remedy="go to another one")
    if error.errno in _LOST:
        discard_stdout()
        return UsageError(f"cannot write the output: {reason}", remedy="check where it goes")
    return _defect(error)


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _is_interruption(error: Exception) -> bool:
    """Whether a library has made an error of its own of a signal's exception.

    Python does where the body of a class is cut short, and keeps it as the cause; a scope that was
    left half entered complains beside it; what pydantic makes as it builds a schema has its name in
    the text alone.

    >>> _is_interruption(ValueError('Error building "str" validator: KeyboardInterrupt: '))
    True
    >>> _is_interruption(ValueError("no number"))
    False
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:  # an error may be raised from itself
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any(
        isinstance(one, KeyboardInterrupt) or KeyboardInterrupt.__name__ in str(one)
        for one in causes
    )


def _defect(error: Exception) -> SpecdeckError:
    text = hide_secrets(f"unexpected {type(error).__name__}: {error}")
    return SpecdeckError(text, remedy="--debug shows where")


def _print_help(text: str) -> int:
    try:
        print_lines(*text.split("\n"))
    except BrokenPipeError:
        return _close_pipe()
    except OSError as error:
        from specdeck.console.cli.typed_credentials import TypedCredentials  # of failures alone

        return _fail(_from_system(error), TypedCredentials(()), as_json=False)
    return 0


def _close_pipe() -> int:
    """The reader has had enough, which is no failure."""
    discard_stdout()
    return 0


def _open_closed_streams() -> None:
    """A standard stream that was closed when the command began leads nowhere.

    The next file that is opened, such as the store, would be taken for it otherwise.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8"))
