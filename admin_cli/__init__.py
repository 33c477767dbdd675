"""The `multiraft` command: what an operator types.

Contract.  `main.main` is the console script.  Commands of this package speak to a cluster only
through `connection.py`, and to processes only through `dev_process.py`; commands of other packages
arrive lazily by the entry-point group `multiraft.commands`.  Every failure ends as one sentence of
what happened, one of what to do, and an exit code of `failures.py`.
Invariants.  Nothing here imports `node`, `multiraft.storage` or trio.  Standard output carries the
answer, standard error everything else.

    main.py         the root command, plug-ins, words from other systems
    dev.py          a local cluster: commands      dev_cluster.py  what they do
    dev_state.py    files of a local cluster       dev_process.py  its processes
    topics.py produce.py consume.py cluster.py completion.py       the other commands
    servers.py      which cluster                  connection.py   how to talk to it
    options.py      flags that many commands share output.py       tables, JSON, progress
    failures.py     exit codes                     packages.py     intruders among our packages
    streams.py      standard input and output      numbers.py      ranges of numbers
    text.py         control characters
"""
