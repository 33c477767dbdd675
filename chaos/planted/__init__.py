"""Planted bugs: mistakes that others have made, put into the running code to see them caught.

``bug`` says what one is and puts it in; ``of_consensus``, ``of_storage`` and ``of_node`` list them;
``catalogue`` is all of them by name; ``proofs`` runs the layer that each belongs to; ``command`` is
``multiraft chaos planted``; ``plugin`` plants in a pytest process.
"""
