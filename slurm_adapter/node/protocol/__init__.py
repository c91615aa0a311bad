"""Messages between the head and an agent: one framing, records as bytes. Knows no socket."""
