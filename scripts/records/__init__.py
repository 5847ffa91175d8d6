"""What runs write down and reports read: samples with their pulses."""
