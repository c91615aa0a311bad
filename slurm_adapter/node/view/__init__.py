"""A rank's view: a private hosts file, host name and directories, without a container."""
