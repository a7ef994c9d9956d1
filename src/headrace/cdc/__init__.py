"""Change data capture: a database's committed changes, as topics of the log.

A `Source` gives whole transactions in commit order, and rows of tables in chunks. The capture
(`capture.py`) writes both as Debezium's envelopes, one topic per table. The position in the source
is a record of the same commit, so each change is in the log once, whatever dies.
"""

from headrace.cdc.capture import Capture, Limits
from headrace.cdc.contract import Source
from headrace.cdc.running import Progress, run
from headrace.cdc.state import CaptureState, read_state

__all__ = ["Capture", "CaptureState", "Limits", "Progress", "Source", "read_state", "run"]
