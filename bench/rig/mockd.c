/* mockd: a cheap stand-in for a fleet of OpenAI-style inference engines.
 *
 * One single-threaded epoll process listens on COUNT consecutive ports of a
 * loopback address; each port is one "worker".  The fleet of TOTAL workers, of
 * which these are those from number FIRST on, is split into MODELS equal blocks,
 * block k serving the model id PREFIX"k".
 *
 *   mockd -b BASE_PORT -n COUNT [-a ADDRESS] [-m MODELS] [-f FIRST] [-t TOTAL]
 *         [-p PREFIX] [-s sglang|vllm]
 *
 * Engine API (every port):
 *   GET  /health /health_generate /ping            200, empty body
 *   GET  /v1/models                                one model, owned_by engine
 *   GET  /version /server_info /get_server_info /model_info /get_model_info
 *   GET  /metrics                                  a few engine gauges
 *   GET  /get_load /load                           in-flight count
 *   POST /tokenize /v1/chat/completions/render     made-up token ids, one per 4 bytes
 *   POST /v1/chat/completions /v1/completions /generate
 *        plain JSON (about 600 bytes), or SSE when the body has "stream":true
 * Every reply carries X-Worker, ADDRESS:PORT, and chat replies have it in the body.
 *
 * Control API (every port):
 *   GET /__set?chunks=50&gap_us=0&delay_us=0   SSE length, gap, first-byte delay
 *   GET /__reset                               zero the counters
 *   GET /__stats                               counters as JSON
 *
 * SSE: each chunk is its own send() (TCP_NODELAY).  With a gap, a worker works as
 * an engine does: every GAP it sends one chunk to each of its streams, and the
 * workers' steps are spread evenly over the gap.  With gap 0, active streams take
 * turns, one chunk each per event-loop turn.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "mockd.h"

#define MAX_REQUEST (32u << 20)

int ep, n_workers, n_models = 1;
const char *prefix = "model-", *engine = "vllm", *address = "127.0.0.1";
struct worker *workers;
unsigned cfg_chunks = 50;
int64_t cfg_gap_ns, cfg_delay_ns;
unsigned long n_accept, n_open, n_chunks, n_body_bytes, n_chunked_req;
static int base_port;

/* Length of a complete chunked body in p..end (0: incomplete); decoded in place. */
static size_t unchunk(char *p, char *end, size_t *decoded)
{
    char *s = p, *d = p;
    for (;;) {
        char *nl = memchr(s, '\n', (size_t)(end - s));
        if (!nl) return 0;
        size_t n = strtoul(s, NULL, 16);
        s = nl + 1;
        if ((size_t)(end - s) < n + 2) return 0;
        if (n == 0) { *decoded = (size_t)(d - p); return (size_t)(s + 2 - p); }
        memmove(d, s, n);
        d += n;
        s += n + 2;
    }
}

/* A chunked body is only decoded once it is all there: look for its end first. */
static int chunked_complete(const char *s, const char *end)
{
    for (;;) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        if (!nl) return 0;
        size_t n = strtoul(s, NULL, 16);
        s = nl + 1;
        if ((size_t)(end - s) < n + 2) return 0;
        if (n == 0) return 1;
        s += n + 2;
    }
}

/* Handle one request if `in` holds one; 1: did, 0: need more bytes. */
static int try_request(struct conn *c)
{
    struct buf *b = &c->in;
    if (b->len < 16) return 0;
    char *end = memmem(b->p, b->len, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end - b->p) + 4, clen = 0;
    int chunked = 0, expect = 0;
    char *line = memchr(b->p, '\n', head);
    char *sp1 = memchr(b->p, ' ', head), *sp2;
    if (!line || !sp1 || !(sp2 = memchr(sp1 + 1, ' ', (size_t)(line - sp1)))) { conn_close(c); return 0; }
    c->close_after = sp2[8] == '0';             /* HTTP/1.0 */
    for (char *p = line + 1; p < end; p = line + 1) {
        line = memchr(p, '\n', (size_t)(end + 2 - p));
        switch (*p | 0x20) {
        case 'c':
            if (!strncasecmp(p, "content-length:", 15)) clen = strtoul(p + 15, NULL, 10);
            else if (!strncasecmp(p, "connection: close", 17)) c->close_after = 1;
            else if (!strncasecmp(p, "connection: keep-alive", 22)) c->close_after = 0;
            break;
        case 't':
            if (!strncasecmp(p, "transfer-encoding:", 18)) chunked = 1;
            break;
        case 'e':
            if (!strncasecmp(p, "expect: 100", 11)) expect = 1;
            break;
        }
    }
    if (clen > MAX_REQUEST) { conn_close(c); return 0; }
    char *body = b->p + head;
    size_t blen = clen;
    if (chunked) {
        if (!chunked_complete(body, b->p + b->len)) goto more;
        c->used = head + unchunk(body, b->p + b->len, &blen);
        n_chunked_req++;
    } else {
        c->used = head + clen;
        if (b->len < c->used) { need(b, c->used - b->len + 1); goto more; }
    }
    handle(c, b->p, (size_t)(sp1 - b->p), sp1 + 1, (size_t)(sp2 - sp1 - 1), body, blen);
    return 1;
more:
    if (expect && b->len == head) reply(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return 0;
}

static void drain_requests(struct conn *c)
{
    while (!c->dead && !c->busy && try_request(c)) {
        if (c->dead) return;
        memmove(c->in.p, c->in.p + c->used, c->in.len - c->used);
        c->in.len -= c->used;
    }
}

static void on_readable(struct conn *c)
{
    need(&c->in, 1);
    if (c->in.len == c->in.cap) need(&c->in, c->in.cap);
    ssize_t r = recv(c->fd, c->in.p + c->in.len, c->in.cap - c->in.len, 0);
    if (r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR)) { conn_close(c); return; }
    if (r < 0) return;
    c->in.len += (size_t)r;
    drain_requests(c);
}

static void on_writable(struct conn *c)
{
    ssize_t r = send(c->fd, c->out.p + c->out_off, c->out.len - c->out_off, MSG_NOSIGNAL);
    if (r < 0) {
        if (errno != EAGAIN && errno != EINTR) conn_close(c);
        return;
    }
    c->out_off += (size_t)r;
    if (c->out_off == c->out.len) {
        c->out.len = c->out_off = 0;
        watch(c, 0);
        if (c->close_after && !c->busy) conn_close(c);
    }
}

static void on_accept(struct worker *w)
{
    for (int i = 0; i < 16; i++) {
        int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) perror("accept");
            return;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn *c = calloc(1, sizeof *c);
        c->kind = CONN;
        c->fd = fd;
        c->w = w;
        n_accept++;
        n_open++;
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
}

/* Run the timers that are due; returns ns until the next (-1: none). */
static int64_t run_timers(void)
{
    int64_t now = now_ns();         /* taken once: one step per stream and turn */
    struct conn *c;
    while ((c = timer_first()) && c->due <= now) {
        timer_off(c);
        step(c);
        if (!c->dead && !c->busy) drain_requests(c);
    }
    if (!c) return -1;
    int64_t d = c->due - now_ns();
    return d > 0 ? d : 0;
}

int main(int argc, char **argv)
{
    int o, first = 0, total = 0;
    while ((o = getopt(argc, argv, "a:b:n:m:f:t:p:s:")) != -1) {
        switch (o) {
        case 'a': address = optarg; break;
        case 'b': base_port = atoi(optarg); break;
        case 'n': n_workers = atoi(optarg); break;
        case 'm': n_models = atoi(optarg); break;
        case 'f': first = atoi(optarg); break;
        case 't': total = atoi(optarg); break;
        case 'p': prefix = optarg; break;
        case 's': engine = optarg; break;
        default: fprintf(stderr, "usage: mockd -b PORT -n COUNT [-a ADDRESS] [-m MODELS] [-f FIRST] [-t TOTAL] [-p PREFIX] [-s ENGINE]\n"); return 2;
        }
    }
    if (base_port <= 0 || n_workers <= 0 || n_models <= 0) { fprintf(stderr, "mockd: -b and -n are needed\n"); return 2; }
    if (total < first + n_workers) total = first + n_workers;
    signal(SIGPIPE, SIG_IGN);
    ep = epoll_create1(EPOLL_CLOEXEC);
    workers = calloc((size_t)n_workers, sizeof *workers);
    for (int i = 0; i < n_workers; i++) {
        struct worker *w = &workers[i];
        w->kind = LISTENER;
        w->port = base_port + i;
        w->model = (int)((long)(first + i) * n_models / total);
        w->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int one = 1;
        setsockopt(w->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)w->port),
                                 .sin_addr.s_addr = inet_addr(address) };
        if (bind(w->fd, (struct sockaddr *)&a, sizeof a) || listen(w->fd, 1024)) {
            fprintf(stderr, "mockd: port %d: %s\n", w->port, strerror(errno));
            return 1;
        }
        build_worker(w);
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = w };
        epoll_ctl(ep, EPOLL_CTL_ADD, w->fd, &e);
    }
    printf("mockd: %d workers on %s, ports %d-%d, %d model(s)\n", n_workers, address, base_port, base_port + n_workers - 1, n_models);
    fflush(stdout);

    struct epoll_event ev[512];
    for (;;) {
        int64_t wait = run_timers();
        struct timespec ts = { wait / 1000000000, wait % 1000000000 };
        int n = epoll_pwait2(ep, ev, 512, wait < 0 ? NULL : &ts, NULL);
        if (n < 0 && errno != EINTR) { perror("epoll"); return 1; }
        for (int i = 0; i < n; i++) {
            enum kind *k = ev[i].data.ptr;
            if (*k == LISTENER) { on_accept((struct worker *)k); continue; }
            struct conn *c = (struct conn *)k;
            if (c->dead) continue;
            if (ev[i].events & EPOLLOUT) on_writable(c);
            if (!c->dead && (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) on_readable(c);
        }
        bury();
    }
}
