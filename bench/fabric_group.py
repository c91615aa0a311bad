"""`fabric_group.py KEY PORT COMMAND HOST...`: a command on many hosts, by nothing but Fabric.

No ssh config is read, which takes Fabric long where it is long; no host key is checked.
"""

import sys

import paramiko
from fabric import Config, ThreadingGroup


def main(key: str, port: str, command: str, *hosts: str) -> None:
    """Run it on all hosts at once; an exception where it fails on one."""
    login = {"key_filename": key, "allow_agent": False, "look_for_keys": False}
    config = Config(lazy=True, ssh_config=paramiko.SSHConfig())
    group = ThreadingGroup(*hosts, port=int(port), config=config, connect_kwargs=login)
    group.run(command, hide=True, in_stream=False)
    group.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
