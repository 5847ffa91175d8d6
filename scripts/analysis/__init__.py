"""From asv's result files to tables, figures and pages. Nothing here imports torch or the benchmarks."""
