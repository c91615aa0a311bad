"""What the head and an agent say to each other: typed messages in one framing. Knows no socket."""
