"""Limits of system calls that handlers have to know."""

#: One ``sendmsg`` takes at most this many buffers (Linux UIO_MAXIOV is 1024).
IOV_BUFFERS_MAX = 1024
