"""Kafka's protocol: messages, their bytes, API versions and error codes.  No I/O.

``requests`` decodes the frame of a request into a header and a message, and encodes the response.
``messages`` has a class for each message, generated from Kafka's schema files by
``tools/kafka_messages``; ``hot_messages`` has those whose codec is compiled.  ``apis`` states the
APIs and versions that are supported, ``error_codes`` Kafka's numbers of errors.
"""
