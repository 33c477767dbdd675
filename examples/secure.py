"""Connect with TLS, show a certificate of the client, and list the topics.

    python examples/secure.py db1:9101 ca.pem client.pem client.key
"""

from __future__ import annotations

import sys

from multiraft.client.blocking import Client, ConfigError, NoNodeAnswered, TlsSettings


def main(servers: str, ca: str, certificate: str = "", key: str = "") -> None:
    try:
        with Client(servers, tls=TlsSettings(ca, certificate, key)) as client:
            for topic in client.list_topics():
                print(topic.name, topic.partitions)
    except ConfigError as error:  # a file is missing, or is no certificate
        sys.exit(f"cannot use the certificates: {error}")
    except NoNodeAnswered as error:  # among other reasons: a certificate was refused
        sys.exit(str(error))


main(*sys.argv[1:])
