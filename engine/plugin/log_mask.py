"""Masks credentials in everything that a process of the engine logs.

vLLM logs its arguments as it starts. An engine that has a secret among them is told by a variable,
so that no other pays for looking through every line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.protocol.messages import MASK_VARIABLE

_MASKS = "_specdeck_masks"


def mask_logs(environment: Mapping[str, str] = os.environ) -> None:
    """Has every record of this process made without credentials, where that is asked for.

    Safe to call again.
    """
    make = logging.getLogRecordFactory()
    if MASK_VARIABLE not in environment or hasattr(make, _MASKS):
        return

    def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            said = record.getMessage()
            masked = redact(said)
        except (TypeError, ValueError, KeyError):
            return record  # no words come of it, which logging itself says
        if masked != said:
            record.msg, record.args = masked, ()
        return record

    setattr(make_masked, _MASKS, True)
    logging.setLogRecordFactory(make_masked)
