"""What rsync takes for ssh: hands rsync's streams to the head's process, which has a connection.

Run by rsync as a program of its own. A second login would ask for passwords again.
"""

import os
import socket
import sys


def main(descriptor: str, _host: str, *command: str) -> int:
    """Give away stdin and stdout, wait until they are no longer needed.

    Args:
        descriptor: a socket to the head's process, inherited.
        _host: where rsync believes to connect to.
        command: what it wants to have run there.

    Returns:
        The status of that command.
    """
    with socket.socket(fileno=int(descriptor)) as head:
        socket.send_fds(head, ["\0".join(command).encode()], [0, 1])
        os.close(0)
        os.close(1)
        status = head.recv(1)
    return status[0] if status else 255


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
