"""What reports do with a benchmark's figures beside showing them, as its class declares it (benchmarks/families.py)."""

CONVERSION, GRAD, LISTS, CASTING = "conversion", "requires grad", "lists", "casting"  # what advice is about
MEMCPY, HARNESS, SEMANTICS = "memcpy", "harness", "semantics"
