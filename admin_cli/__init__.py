"""The `multiraft` command of operators.

Contract.  `main.main` is the console script.  Commands of this package reach a cluster only through
`connection.py`, and processes only through `development/dev_process.py`; commands of other packages
are loaded on use from the entry-point group `multiraft.commands`.  Every failure ends as one
sentence about its cause, one about the remedy, and an exit code of `failures.py`.

Invariants.  Nothing here imports `node`, `multiraft.storage` or trio.  Standard output carries the
answer, standard error everything else.

    main.py         the root command, plug-ins    connection.py   access to the cluster
    servers.py      addresses of the cluster      session.py      what a command is run with
    failures.py     exit codes                    dev_cluster.py  development clusters
    extras.py       packages that may be missing  packages.py     foreign packages on the path
    values/         numbers, times, spans, text   development/    files and processes of nodes here
    console/        options, help, tables         status/         facts of a cluster
    records/        produce and consume           plans/          rebalance plans, loads
    commands/       the other commands
"""
