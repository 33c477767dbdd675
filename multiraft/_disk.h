/* Gathered appends, and a queue of them whose worker thread never needs the interpreter.
 *
 * Rules of the queue.  Jobs are done one at a time and in order.  After the first failure no job
 * writes: a failed fsync is never retried (the page cache may already have dropped the data) and
 * nothing is written behind a hole.  The mutex is held for pointer moves only, so a
 * submitter that holds the interpreter's lock never waits for the disk.
 */
#ifndef MULTIRAFT_DISK_H
#define MULTIRAFT_DISK_H

#include <errno.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Returns freed memory to the operating system, as far as the allocator can. */
static void mr_trim_memory(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

/* Buffers that one pwritev takes (Linux UIO_MAXIOV). */
#define MR_IOV_MAX 1024

/* Bytes between two syncs of one append.  A disk takes small syncs in between long ones only when
 * the long ones are short: 2 MiB at a time made the others wait twenty times as long, and took
 * longer themselves (docs/decisions/0034). */
#define MR_SYNC_BYTES ((size_t)512 << 10)

/* How many of the first buffers fit into ``room`` bytes.  ``cut`` is how much of the last one is
 * left out: that buffer is shortened for now. */
static int mr_take(struct iovec *iov, size_t count, size_t room, size_t *cut) {
    int taken = 0;
    *cut = 0;
    while ((size_t)taken < count && taken < MR_IOV_MAX && room) {
        struct iovec *buffer = &iov[taken++];
        if (buffer->iov_len > room) {
            *cut = buffer->iov_len - room;
            buffer->iov_len = room;
        }
        room -= buffer->iov_len;
    }
    return taken;
}

/* Writes all of ``iov`` (no empty ones; changed on the way) at ``position``; if asked, with a sync
 * after each MR_SYNC_BYTES and at the end.  0 or an error number. */
static int mr_append(int fd, struct iovec *iov, size_t count, off_t position, int sync,
                     size_t *written) {
    size_t unsynced = 0, cut;
    *written = 0;
    while (count) {
        int chunk = mr_take(iov, count, sync ? MR_SYNC_BYTES - unsynced : SIZE_MAX, &cut);
        ssize_t done = pwritev(fd, iov, chunk, position + (off_t)*written);
        iov[chunk - 1].iov_len += cut;
        if (done < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        if (done == 0) {
            return EIO;
        }
        *written += (size_t)done;
        unsynced += (size_t)done;
        while (count && (size_t)done >= iov->iov_len) {
            done -= (ssize_t)iov->iov_len;
            iov++;
            count--;
        }
        if (done) {
            iov->iov_base = (char *)iov->iov_base + done;
            iov->iov_len -= (size_t)done;
        }
        if (sync && count && unsynced >= MR_SYNC_BYTES) {
            if (fdatasync(fd) < 0) {
                return errno;
            }
            unsynced = 0;
        }
    }
    return sync && fdatasync(fd) < 0 ? errno : 0;
}

typedef struct mr_job {
    struct mr_job *next;
    struct iovec *iov; /* of ``owner`` */
    size_t iov_count;
    void *owner; /* what keeps the buffers alive; the submitter's */
    off_t position;
    int64_t token;
    int fd;
    int sync;
    int error;
    size_t written; /* 0 unless ``error`` is 0 */
    int64_t micros;
} mr_job;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    mr_job *submitted, **submitted_end;
    mr_job *completed, **completed_end;
    int wake_fd;
    int closing;
    int started;
    int failed; /* worker only */
} mr_disk_queue;

static mr_disk_queue *mr_disk_queue_new(int wake_fd) {
    mr_disk_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return NULL;
    }
    if (pthread_mutex_init(&queue->mutex, NULL) != 0) {
        free(queue);
        return NULL;
    }
    if (pthread_cond_init(&queue->changed, NULL) != 0) {
        pthread_mutex_destroy(&queue->mutex);
        free(queue);
        return NULL;
    }
    queue->wake_fd = wake_fd;
    queue->submitted_end = &queue->submitted;
    queue->completed_end = &queue->completed;
    return queue;
}

/* Free a queue that no thread uses and whose jobs were taken out. */
static void mr_disk_queue_free(mr_disk_queue *queue) {
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}

/* 0 = the queue is closed and the job was not taken. */
static int mr_disk_queue_submit(mr_disk_queue *queue, mr_job *job) {
    pthread_mutex_lock(&queue->mutex);
    int open = !queue->closing;
    if (open) {
        *queue->submitted_end = job;
        queue->submitted_end = &job->next;
        pthread_cond_signal(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return open;
}

static void mr_disk_queue_close(mr_disk_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    queue->closing = 1;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

/* 0 = a thread runs the queue already, or has run it. */
static int mr_disk_queue_claim(mr_disk_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    int claimed = !queue->started;
    queue->started = 1;
    pthread_mutex_unlock(&queue->mutex);
    return claimed;
}

static mr_job *mr_disk_queue_take_submitted(mr_disk_queue *queue) {
    mr_job *jobs = queue->submitted;
    queue->submitted = NULL;
    queue->submitted_end = &queue->submitted;
    return jobs;
}

static mr_job *mr_disk_queue_take_completed(mr_disk_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    mr_job *jobs = queue->completed;
    queue->completed = NULL;
    queue->completed_end = &queue->completed;
    pthread_mutex_unlock(&queue->mutex);
    return jobs;
}

static int64_t mr_micros(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void mr_job_execute(mr_disk_queue *queue, mr_job *job) {
    job->error = ECANCELED;
    if (!queue->failed) {
        int64_t started = mr_micros();
        job->error = mr_append(job->fd, job->iov, job->iov_count, job->position, job->sync,
                               &job->written);
        job->micros = mr_micros() - started;
        queue->failed = job->error != 0;
    }
    if (job->error) {
        job->written = 0;
    }
}

/* The next job; NULL = closed and nothing left. */
static mr_job *mr_disk_queue_next(mr_disk_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->submitted == NULL && !queue->closing) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    mr_job *job = queue->submitted;
    if (job != NULL) {
        queue->submitted = job->next;
        if (queue->submitted == NULL) {
            queue->submitted_end = &queue->submitted;
        }
        job->next = NULL;
    }
    pthread_mutex_unlock(&queue->mutex);
    return job;
}

/* The worker's loop.  0, or the error number of a failed wake-up. */
static int mr_disk_queue_run(mr_disk_queue *queue) {
    mr_job *job;
    while ((job = mr_disk_queue_next(queue)) != NULL) {
        mr_job_execute(queue, job);
        pthread_mutex_lock(&queue->mutex);
        *queue->completed_end = job;
        queue->completed_end = &job->next;
        pthread_mutex_unlock(&queue->mutex);
        uint64_t one = 1;
        while (write(queue->wake_fd, &one, sizeof one) < 0) {
            if (errno != EINTR) {
                return errno;
            }
        }
    }
    return 0;
}

#endif
