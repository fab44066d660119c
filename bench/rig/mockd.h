/* What the three files of mockd share: see mockd.c. */
#ifndef MOCKD_H
#define MOCKD_H
#include <stddef.h>
#include <stdint.h>

enum kind { LISTENER, CONN };
struct buf { char *p; size_t len, cap; };

struct worker {
    enum kind kind;                 /* LISTENER */
    int fd, port, model;
    unsigned inflight, peak;
    unsigned long chat, streams, health, tokenized, other;
    struct buf json, first, chunk, last; /* prebuilt replies */
};

struct conn {
    enum kind kind;                 /* CONN */
    int fd;
    struct worker *w;
    struct buf in;
    size_t used;                    /* bytes of `in` that the current request takes */
    struct buf out;                 /* unsent reply bytes */
    size_t out_off;
    int want_write, busy, stream, close_after, dead;
    unsigned sent;                  /* chunks sent so far */
    int slot;                       /* place in the timer heap, 0: none */
    int64_t due;
    struct conn *next;              /* in the graveyard */
};

/* mockd.c: the fleet and its settings */
extern int ep, n_workers, n_models;
extern const char *prefix, *engine, *address;
extern struct worker *workers;
extern unsigned cfg_chunks;
extern int64_t cfg_gap_ns, cfg_delay_ns;
extern unsigned long n_accept, n_open, n_chunks, n_body_bytes, n_chunked_req;

/* mockd_io.c: buffers, timers, sending */
int64_t now_ns(void);
void need(struct buf *b, size_t extra);
void put(struct buf *b, const char *p, size_t n);
void putf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void timer_at(struct conn *c, int64_t due);
void timer_off(struct conn *c);
struct conn *timer_first(void);     /* soonest due, NULL: none */
void watch(struct conn *c, int write);
void reply(struct conn *c, const char *p, size_t n);
void finish(struct conn *c);
void simple(struct conn *c, const char *status, const char *type, const char *body, size_t n);
void conn_close(struct conn *c);
void bury(void);                    /* free the connections closed in this batch */

/* mockd_engine.c: what an engine answers */
void build_worker(struct worker *w);
void step(struct conn *c);
void handle(struct conn *c, const char *method, size_t mlen, const char *path, size_t plen,
            const char *body, size_t blen);
#endif
