"""Blocking files: lanes, index, checkpoints and recovery, behind one small filesystem seam.

``Store`` is the entrance (``store.py``); ``docs/storage-format.md`` has the bytes.
"""
