"""A rank's private surroundings: hosts file, host name and directories, without a container."""
