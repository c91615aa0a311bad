"""Floor 5: starting a job: on Slurm with sbatch, or on this machine."""
