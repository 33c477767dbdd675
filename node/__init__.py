"""The server of one node, and the only package that runs trio.

Read ``main`` first: start and stop of the process. It calls ``assembly``, which wires the parts of
the sub-packages by subject. ``loop`` drives consensus and the disk, ``clients`` serves the client
port, ``peers`` the peer port. No other package imports ``node``, except for its pure state machines
in the simulator.
"""
