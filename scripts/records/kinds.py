"""What a file holds, read as the dataclass that says what it is to hold: the annotations are the kinds."""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Made = TypeVar("Made")
_known: dict[Any, dict[str, Any]] = {}  # dataclass -> the kinds of its fields: files hold thousands of one


def made_of(kind: type[Made], loaded: Any) -> Made:
    """A dataclass of what JSON holds. What is not there or null has its default; a name that it lacks is left alone.

    TypeError where something is of another kind, or what has no default is not there. Fields are of str, bool, int,
    float or None, dataclasses, or mappings and tuples of these.
    """
    if not isinstance(loaded, Mapping):
        raise TypeError(f"{kind.__name__} is {loaded!r}")
    kinds = _known.get(kind) or _known.setdefault(kind, get_type_hints(kind))
    there = {name: each for name, each in kinds.items() if loaded.get(name) is not None}
    return kind(**{name: _value(name, each, loaded[name]) for name, each in there.items()})


def _value(name: str, kind: Any, loaded: Any) -> Any:
    outer, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return loaded
    if isinstance(kind, type) and is_dataclass(kind):
        return made_of(kind, loaded)
    if outer is Mapping and isinstance(loaded, dict):
        return {key: _value(f"{name}.{key}", inner[1], value) for key, value in loaded.items()}
    if outer is tuple and isinstance(loaded, list):
        return tuple(_value(name, inner[0], value) for value in loaded)
    kinds = inner if outer is UnionType else (outer or kind,)
    if not isinstance(loaded, (*kinds, int) if float in kinds else kinds) or loaded in (math.inf, -math.inf):
        raise TypeError(f"{name} is {loaded!r}")
    return loaded
