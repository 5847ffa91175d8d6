"""What checks of the suite itself measure, and how it is judged: its timing, noise, what interruptions leave."""
