"""Floor 1: which nodes there are, and how Slurm or the user says so."""
