# Gathered appends and the queue of the disk worker.
#
# Included by _core.pyx.

cdef class _Gathered:
    """Buffers held for a gathered write, and their addresses without the empty ones."""

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
            self.held = at + 1
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
    if position < 0:  # the kernel takes -1 for "where the file stands"
        raise ValueError(f"position={position} is negative")
    return 0


def unset_memory(Py_ssize_t size):
    if size < 0:
        raise ValueError(f"size={size} is negative")
    return PyByteArray_FromStringAndSize(NULL, size)


def append_gathered(int fd, buffers, off_t position, bint sync):
    _require_position(position)
    cdef _Gathered gathered = _Gathered(buffers)
    cdef size_t written = 0
    cdef int error
    with nogil:
        error = mr_append(fd, gathered.iov, gathered.count, position, sync, &written)
    if error:
        _raise_oserror(error)
    return written


cdef class DiskQueue:
    """The queue of one writer thread that never needs the interpreter; see ``_core.pyi``."""

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

    def submit(self, int fd, buffers, off_t position, bint sync, int64_t token):
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
        Py_INCREF(gathered)
        if not mr_disk_queue_submit(self._queue, job):
            Py_DECREF(gathered)
            free(job)
            raise ValueError("the disk queue is closed")
        self._outstanding += 1

    def run(self):
        cdef int error
        if not mr_disk_queue_claim(self._queue):
            raise RuntimeError("the disk queue has its worker already")
        with nogil:
            error = mr_disk_queue_run(self._queue)
        if error:
            _raise_oserror(error)

    def completions(self):
        cdef list completed = []
        _release(mr_disk_queue_take_completed(self._queue), completed)
        self._outstanding -= len(completed)
        return completed

    def close(self):
        mr_disk_queue_close(self._queue)


cdef int _release(mr_job *job, list completed) except -1:
    """Free a list of jobs and what they hold; their outcomes go to ``completed``."""
    cdef mr_job *following
    while job != NULL:
        following = job.next
        if completed is not None:
            completed.append((job.token, job.error, job.written, job.micros))
        Py_DECREF(<object>job.owner)
        free(job)
        job = following
    return 0
