"""Analysis: from result files to tables, choices, verdicts and histories. No text, no figures, no
torch."""
