"""Files, processes and logs of development clusters on this machine."""
