"""What a route was measured to do: whether its result shares memory, its dtype, whether it takes what requires grad."""


def dtype_of(unit: str, value: float) -> str:
    """The dtype that a figure of track_dtype stands for: its place in the unit's list."""
    names = unit.removeprefix("place in ").split()
    return names[int(value)] if value < len(names) else "?"
