"""What to run, what one node must have, where its directories are found."""
