"""What is known: from result files to tables, choices, verdicts and histories. No sentence, no drawing, no torch."""
