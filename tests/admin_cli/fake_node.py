"""A process that behaves like a node as far as `multiraft dev` can see, and misbehaves on request.

Run as ``fake_node.py start --config node.toml``; ``init`` does nothing.  A file ``behaviour``
beside the configuration makes it misbehave: ``die`` (writes a reason, exits 3), ``removed``
(records that it was removed, exits 3), ``silent`` (never gets ready), ``stubborn`` (ignores
SIGTERM).
"""

import json
import signal
import socket
import sys
import tomllib
from pathlib import Path


def main() -> None:
    if sys.argv[1] == "init":
        return
    config_path = Path(sys.argv[sys.argv.index("--config") + 1])
    config = tomllib.loads(config_path.read_text(encoding="utf-8"))
    behaviour_path = config_path.with_name("behaviour")
    behaviour = behaviour_path.read_text(encoding="utf-8") if behaviour_path.exists() else ""
    if behaviour == "die":
        sys.stderr.write("data directory belongs to node 9\n")
        sys.exit(3)
    if behaviour == "removed":
        (config_path.parent / config["node"]["data_dir"] / "refused.json").write_text(
            json.dumps({"reason": "node 2 was removed from the cluster"}), encoding="utf-8")
        sys.exit(3)
    host, _, port = config["node"]["client_address"].rpartition(":")
    listener = socket.create_server((host, int(port)))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn"
                  else lambda *_: sys.exit(0))
    if behaviour != "silent":
        sys.stdout.write(json.dumps({"event": "node_started", "node": config["node"]["id"]}) + "\n")
        sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        connection.close()


if __name__ == "__main__":
    main()
