"""What reports do with a benchmark's figures beside showing them, as its class declares it (benchmarks/families.py)."""

# what advice is about
CONVERSION, GRAD, LISTS, CASTING, SETTINGS = "conversion", "requires grad", "lists", "casting", "settings"
BETWEEN = "between"  # conversions again, at sizes that a run chooses
PLACEMENT = "placement"  # beside their figures where source and buffer lie apart
MEMCPY, HARNESS, SEMANTICS = "memcpy", "harness", "semantics"
# of what an accelerator takes part in
TRANSFER, SCALAR, OVERLAP, CONTEXT, PINNING = "transfer", "scalar", "overlap", "context", "pinned memory"
LINK, SYNCHRONIZE, HARDWARE = "link", "synchronize", "hardware"
BUSY, BEHIND, MANY, CAST_ON_THE_WAY = "busy", "work behind", "many", "cast on the way"
