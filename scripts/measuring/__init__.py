"""Drive asv: a runner with its journal, profiles, two sides measured in turns, a fleet of nodes."""
