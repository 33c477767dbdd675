"""The `multiraft` command of operators.

Contract.  `main.main` is the console script.  Commands of this package reach a cluster only through
`connection.py`, and processes only through `dev_process.py`; commands of other packages are loaded
on use from the entry-point group `multiraft.commands`.  Every failure ends as one sentence about
its cause, one about the remedy, and an exit code of `failures.py`.

Invariants.  Nothing here imports `node`, `multiraft.storage` or trio.  Standard output carries the
answer, standard error everything else.

    main.py         the root command, plug-ins, words of other systems
    dev.py          a local cluster: commands      dev_cluster.py  their implementation
    dev_state.py    files of a local cluster       dev_process.py  its processes
    topics.py produce.py consume.py cluster.py completion.py       the other commands
    servers.py      addresses of the cluster       connection.py   access to the cluster
    options.py      flags that many commands share output.py       tables, JSON, progress
    failures.py     exit codes                     packages.py     foreign packages on the path
    streams.py      standard input and output      numbers.py      ranges of numbers
    text.py         control characters            hints.py         words of other products
    help_pages.py   `multiraft help`              extras.py        packages that may be missing
"""
