"""Count the words of a topic in SQLite, each record exactly once, also after a crash.

    python examples/consume_to_sqlite.py 127.0.0.1:9101 greetings counts.db

Results and offsets are stored in one transaction of the database.  A run that was killed left
both as they were after the last batch, and the next run continues there.
"""

from __future__ import annotations

import sqlite3
import sys

from multiraft.client.blocking import Client, FetchedBatch

TABLES = """
CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS positions (topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL,
                                      PRIMARY KEY (topic, partition));
"""


def main(servers: str, topic: str, file: str) -> None:
    database = sqlite3.connect(file)
    database.executescript(TABLES)
    start = dict(database.execute(
        "SELECT partition, next_offset FROM positions WHERE topic = ?", (topic,)))
    with Client(servers) as client:
        for batch in client.consume(topic, start=start, until_end=True):
            with database:  # one transaction: committed at its end, or rolled back
                store(database, batch)
    for word, count in database.execute("SELECT word, count FROM words ORDER BY word"):
        print(word, count)
    database.close()


def store(database: sqlite3.Connection, batch: FetchedBatch) -> None:
    """Add a batch to the results, and its end to the positions."""
    for record in batch:
        for word in (record.value or b"").decode(errors="replace").split():
            database.execute("INSERT INTO words VALUES (?, 1) "
                             "ON CONFLICT (word) DO UPDATE SET count = count + 1", (word,))
    database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
                     (batch.topic, batch.partition, batch.next_offset))


main(*sys.argv[1:])
