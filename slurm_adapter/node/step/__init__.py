"""Inside a Slurm step: `exec`, `env` and `finish`. A task becomes its rank and leaves nothing."""
