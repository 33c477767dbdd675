"""Requests of Kafka's protocol: from the requests of a session to the node's handlers, and from
their replies to Kafka's messages.

Contract. No handler of this package appends, reads or decides: it translates names of topics to
incarnations and the node's codes to Kafka's errors, and calls the handlers that the native protocol
has. Layering: it uses ``node.clients`` and ``node.admin``, and nothing but ``node.assembly`` uses
it.
"""
