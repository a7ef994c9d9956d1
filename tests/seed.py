"""The random seed of a run, the same in all of its processes."""

from __future__ import annotations

import os
import secrets

_GIVEN = os.environ.setdefault("HYPOTHESIS_SEED", str(secrets.randbelow(1 << 32)))

SEED = int(_GIVEN) if _GIVEN else None
"""None, from an empty HYPOTHESIS_SEED, selects the fixed examples."""
