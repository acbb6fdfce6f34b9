"""The `specdeck` command, and `python -m specdeck`: signals first, and then all else."""

from specdeck.console.cli.first_and_last import (
    exit_at_signals,
    keep_exit_code,
    require_clock,
)


def main() -> None:
    """Runs one command and exits with its documented code."""
    exit_at_signals()
    keep_exit_code()
    require_clock()
    from specdeck.engine.core_dumps import forbid_core_dumps

    forbid_core_dumps()
    from specdeck.console.cli.main import main as run  # takes a while

    run()


if __name__ == "__main__":
    main()
