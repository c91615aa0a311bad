"""Jobs that were submitted to Slurm: their records, their states, their output as it grows."""
