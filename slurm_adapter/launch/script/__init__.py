"""A job becomes the text of an sbatch script. Pure: nothing here asks anybody."""
