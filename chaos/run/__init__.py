"""A run: a cluster of real nodes, workloads, faults, and what became of the promises.

Contract.  ``parameters`` say what is wanted, ``conduct`` does it and leaves a folder, ``judge``
says what it proves.  ``command`` is `multiraft chaos run`.
"""
