"""Other names of what lies in `operations.change`, for screens that have still to move."""

from specdeck.engine.control.protocol import STEPS_IN_FLIGHT as STEPS_IN_FLIGHT
from specdeck.engine.operations.change import format_undo as undo
from specdeck.engine.operations.change import format_value as spelled
from specdeck.engine.operations.change import knobs_to_undo as back

__all__ = ["STEPS_IN_FLIGHT", "back", "spelled", "undo"]
