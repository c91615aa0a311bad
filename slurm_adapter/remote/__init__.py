"""Every way to another machine: connections, the head's end of an agent, copies of the code."""
