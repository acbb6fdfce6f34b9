"""No core dump of a command: it would hold keys and tokens, in a file that nobody asked for."""

import resource
from contextlib import suppress

_before: list[tuple[int, int]] = []


def forbid_core_dumps() -> None:
    """From here on neither this process nor what it starts leaves a core dump."""
    with suppress(OSError, ValueError):
        before = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
        _before.append(before)


def give_back_core_dumps(pid: int) -> None:
    """Has a process that this one has started leave what it would have left without this one.

    An engine's crash is looked into by its core dump, and its owner has said how large one may be.
    """
    if _before:
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_CORE, _before[0])
