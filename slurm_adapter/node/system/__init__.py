"""System calls, namespaces, signals, processes and files, without a word about jobs."""
