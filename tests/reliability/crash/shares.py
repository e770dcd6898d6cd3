"""How many points of each scenario are tried with every commit."""

from __future__ import annotations

from typing import Final

SHARES: Final = {
    ("in-process", "sqlite"): 76,
    ("in-process", "postgresql"): 14,
    ("killed", "sqlite"): 5,
    ("killed", "postgresql"): 3,
    ("double", "sqlite"): 2,
    ("double", "postgresql"): 1,
    ("stops", "postgresql"): 1,
    ("power", "sqlite"): 13,
}
"""By figure and store. A scenario that has fewer points gives all that it has."""
