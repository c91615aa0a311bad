"""Starting a job: on Slurm with sbatch, on hosts over SSH, or on this machine."""
