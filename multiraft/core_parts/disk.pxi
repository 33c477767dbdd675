# Gathered appends and the queue of the disk worker.
#
# Included by _core.pyx.

cdef class _Gathered:
    """Buffers held for a gathered write, and the addresses of those that are not empty."""

    cdef Py_buffer *views
    cdef iovec *iov
    cdef Py_ssize_t held
    cdef size_t count

    def __cinit__(self, buffers):
        cdef tuple members = tuple(buffers)
        cdef Py_ssize_t at, room = max(1, len(members))
        self.views = <Py_buffer *>PyMem_Calloc(<size_t>room, sizeof(Py_buffer))
        self.iov = <iovec *>PyMem_Calloc(<size_t>room, sizeof(iovec))
        if self.views == NULL or self.iov == NULL:
            raise MemoryError
        for at in range(len(members)):
            PyObject_GetBuffer(members[at], &self.views[at], PyBUF_SIMPLE)
            self.held = at + 1  # for __dealloc__, also if the next buffer raises
            if self.views[at].len:
                self.iov[self.count].iov_base = self.views[at].buf
                self.iov[self.count].iov_len = <size_t>self.views[at].len
                self.count += 1

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.held):
            PyBuffer_Release(&self.views[at])
        PyMem_Free(self.views)
        PyMem_Free(self.iov)


cdef int _raise_oserror(int error) except -1:
    c_errno.errno = error
    PyErr_SetFromErrno(OSError)
    return -1


cdef int _require_position(off_t position) except -1:
    if position < 0:  # to the reference's pwritev2, -1 is the current file offset
        raise ValueError(f"position={position} is negative")
    return 0


def unset_memory(Py_ssize_t size: int) -> bytearray:
    """Return ``size`` bytes of memory with undefined content, to read or receive into.

    Saves the zeroing of ``bytearray(size)``.  The caller must pass on only bytes that were filled.

    Raises ``ValueError`` for a negative size.
    """
    if size < 0:
        raise ValueError(f"size={size} is negative")
    return PyByteArray_FromStringAndSize(NULL, size)


def trim_memory() -> None:
    """Return memory that was freed to the operating system, as far as the allocator can.

    Most of the memory that a start has used meanwhile is between what it keeps.  Some milliseconds
    for each 100 MB; the reference, and the compiled twin without the GNU C library, do nothing.
    """
    with nogil:
        mr_trim_memory()


def append_gathered(int fd: int, buffers: Iterable[Buffer], off_t position: int, bint sync: bool,
                    ) -> int:
    """Write all ``buffers`` at byte ``position`` of a file; return the number of bytes written.

    pwritev is repeated after short writes.  With ``sync``, fdatasync runs after each 512 KiB and at
    the end (docs/decisions/0034).  A failed sync is never retried.  O(bytes).

    Raises ``OSError``, ``ValueError`` for a negative position.
    """
    _require_position(position)
    cdef _Gathered gathered = _Gathered(buffers)
    cdef size_t written = 0
    cdef int error
    # ``gathered`` holds the buffers in place until the system calls are done.
    with nogil:
        error = mr_append(fd, gathered.iov, gathered.count, position, sync, &written)
    if error:
        _raise_oserror(error)
    return written


cdef class DiskQueue:
    """DiskQueue(wake_fd)
--

    Queue of one writer thread, which appends and syncs jobs in the order of submission.

    ``wake_fd``: an eventfd, to which each completion adds 1; the queue does not close it.  The
    writer of the compiled twin runs without the interpreter's lock.

    After a failed job every later job completes with ``ECANCELED`` and leaves the disk untouched: a
    failed fsync is never retried, and nothing may be written after a gap.
    """

    def __cinit__(self, int wake_fd):
        self._queue = mr_disk_queue_new(wake_fd)
        if self._queue == NULL:
            raise MemoryError

    def __dealloc__(self):
        # No worker can be inside: it would hold a reference to this object.
        if self._queue != NULL:
            _release(mr_disk_queue_take_submitted(self._queue), None)
            _release(mr_disk_queue_take_completed(self._queue), None)
            mr_disk_queue_free(self._queue)

    def submit(self, int fd: int, buffers: Iterable[Buffer], off_t position: int, bint sync: bool,
               int64_t token: int) -> None:
        """Enqueue one ``append_gathered``; never wait for the disk.

        The queue holds the buffers until ``completions`` returns the job; until then the caller
        must not change them.  ``token``: a signed 64-bit number, which the completion repeats.

        Raises ``ValueError`` after ``close`` or for a negative position, ``QueueFull`` while 1,024
        jobs are submitted and not collected.
        """
        _require_position(position)
        cdef _Gathered gathered = _Gathered(buffers)
        if self._outstanding >= DISK_QUEUE_JOBS_MAX:
            raise QueueFull("disk_queue_jobs", DISK_QUEUE_JOBS_MAX, self._outstanding + 1)
        cdef mr_job *job = <mr_job *>calloc(1, sizeof(mr_job))
        if job == NULL:
            raise MemoryError
        job.fd, job.position, job.sync, job.token = fd, position, sync, token
        job.iov, job.iov_count = gathered.iov, gathered.count
        job.owner = <void *>gathered
        Py_INCREF(gathered)  # the job's reference, which ``_release`` gives back
        if not mr_disk_queue_submit(self._queue, job):
            Py_DECREF(gathered)
            free(job)
            raise ValueError("the disk queue is closed")
        self._outstanding += 1

    def run(self) -> None:
        """Process jobs until the queue is closed and empty: the body of the writer thread.

        Raises ``RuntimeError`` if the queue has or had a writer thread already.
        """
        cdef int error
        if not mr_disk_queue_claim(self._queue):
            raise RuntimeError("the disk queue has its worker already")
        with nogil:
            error = mr_disk_queue_run(self._queue)
        if error:
            _raise_oserror(error)

    def completions(self) -> list[tuple[int, int, int, int]]:
        """Return the jobs completed since the last call, in the order of submission.

        Each job is (token, error number or 0, bytes written, microseconds taken); its buffers are
        released.  The eventfd is not read.  O(jobs).
        """
        cdef list completed = []
        _release(mr_disk_queue_take_completed(self._queue), completed)
        self._outstanding -= len(completed)
        return completed

    def close(self) -> None:
        """Refuse further jobs; ``run`` returns once the submitted jobs are done.  Idempotent."""
        mr_disk_queue_close(self._queue)


cdef int _release(mr_job *job, list completed) except -1:
    """Free a list of jobs and release their buffers; append their outcomes to ``completed``."""
    cdef mr_job *following
    while job != NULL:
        following = job.next
        if completed is not None:
            completed.append((job.token, job.error, job.written, job.micros))
        Py_DECREF(<object>job.owner)  # releases the buffers
        free(job)
        job = following
    return 0
