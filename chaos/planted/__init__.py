"""Planted bugs: known mistakes that are patched into the running code, to see that a proof catches
them.

``bug`` defines and plants one; ``consensus``, ``storage``, ``node`` and others list them;
``catalogue`` has all of them by name; ``proofs`` runs the layer that each belongs to; ``command``
is ``multiraft chaos planted``; ``plugin`` plants in a pytest process.
"""
