"""What runs write down and reports read: records of runs, and samples with their pulses."""
