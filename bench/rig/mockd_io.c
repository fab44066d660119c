/* mockd: buffers, the timer heap, and sending on a connection. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "mockd.h"

static struct conn **heap;          /* heap[1..n_heap], soonest first */
static int n_heap, cap_heap;
static struct conn *graveyard;

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void need(struct buf *b, size_t extra)
{
    if (b->len + extra <= b->cap) return;
    size_t cap = b->cap ? b->cap : 2048;
    while (cap < b->len + extra) cap *= 2;
    b->p = realloc(b->p, cap);
    if (!b->p) { perror("realloc"); exit(1); }
    b->cap = cap;
}

void put(struct buf *b, const char *p, size_t n)
{
    need(b, n);
    memcpy(b->p + b->len, p, n);
    b->len += n;
}

void putf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    need(b, 4096);
    va_start(ap, fmt);
    int n = vsnprintf(b->p + b->len, b->cap - b->len, fmt, ap);
    va_end(ap);
    if (n > 0) b->len += (size_t)n;
}

/* ---- timers ---------------------------------------------------------- */

static void heap_set(int i, struct conn *c) { heap[i] = c; c->slot = i; }

static void heap_up(int i, struct conn *c)
{
    for (; i > 1 && heap[i / 2]->due > c->due; i /= 2) heap_set(i, heap[i / 2]);
    heap_set(i, c);
}

static void heap_down(int i, struct conn *c)
{
    for (int k; (k = 2 * i) <= n_heap; i = k) {
        if (k < n_heap && heap[k + 1]->due < heap[k]->due) k++;
        if (heap[k]->due >= c->due) break;
        heap_set(i, heap[k]);
    }
    heap_set(i, c);
}

void timer_at(struct conn *c, int64_t due)
{
    c->due = due;
    if (n_heap + 2 > cap_heap) {
        cap_heap = cap_heap ? cap_heap * 2 : 1024;
        heap = realloc(heap, (size_t)cap_heap * sizeof *heap);
        if (!heap) { perror("realloc"); exit(1); }
    }
    heap_up(++n_heap, c);
}

void timer_off(struct conn *c)
{
    int i = c->slot;
    if (!i) return;
    c->slot = 0;
    struct conn *last = heap[n_heap--];
    if (last == c) return;
    if (i > 1 && heap[i / 2]->due > last->due) heap_up(i, last); else heap_down(i, last);
}

struct conn *timer_first(void) { return n_heap ? heap[1] : NULL; }

/* ---- sending ------------------------------------------------------------ */

void conn_close(struct conn *c)
{
    if (c->dead) return;
    c->dead = 1;
    timer_off(c);
    if (c->busy) c->w->inflight--;
    close(c->fd);
    n_open--;
    c->next = graveyard;            /* freed after this batch of events */
    graveyard = c;
}

void watch(struct conn *c, int write)
{
    if (c->want_write == write) return;
    c->want_write = write;
    struct epoll_event e = { .events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

void reply(struct conn *c, const char *p, size_t n)
{
    if (c->dead) return;
    if (c->out.len == c->out_off) {
        ssize_t r = send(c->fd, p, n, MSG_NOSIGNAL);
        if (r == (ssize_t)n) return;
        if (r < 0) {
            if (errno != EAGAIN && errno != EINTR) { conn_close(c); return; }
            r = 0;
        }
        p += r;
        n -= (size_t)r;
        c->out.len = c->out_off = 0;
    }
    put(&c->out, p, n);
    watch(c, 1);
}

void finish(struct conn *c)
{
    if (c->dead) return;
    if (c->busy) { c->busy = 0; c->w->inflight--; }
    if (c->close_after && c->out.len == c->out_off) conn_close(c);
}

void simple(struct conn *c, const char *status, const char *type, const char *body, size_t n)
{
    struct buf b = {0};
    putf(&b, "HTTP/1.1 %s\r\nContent-Type: %s\r\nX-Worker: %s:%d\r\nContent-Length: %zu\r\n\r\n",
         status, type, address, c->w->port, n);
    put(&b, body, n);
    reply(c, b.p, b.len);
    free(b.p);
}

void bury(void)
{
    while (graveyard) {
        struct conn *c = graveyard;
        graveyard = c->next;
        free(c->in.p);
        free(c->out.p);
        free(c);
    }
}
