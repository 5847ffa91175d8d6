"""Whether what a file holds is of the kinds that its readers take for granted."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def check(found: Mapping[str, Any], kinds: Mapping[str, Any], required: Sequence[str] = ()) -> None:
    """TypeError where something that is there is not of its kind, KeyError where something required is not there.

    kinds: name -> its type or types; the name "a.b" is b in a.
    """
    for name, kind in kinds.items():
        outer, _, inner = name.rpartition(".")
        holder = found.get(outer, {}) if outer else found
        if inner not in holder:
            if name in required:
                raise KeyError(name)
        elif not isinstance(holder[inner], kind) or holder[inner] in (math.inf, -math.inf):
            raise TypeError(f"{name} is {holder[inner]!r}")
