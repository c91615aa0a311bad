"""Ranks as children of a process of ours: started, supervised, ended, the first failure named."""
