"""One history on many machines: who measures what, on the engine that its users already run."""
