/* mockd: the answers of an engine, and the control API. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mockd.h"

static struct { char path[64]; unsigned long n; } unknown[64];

/* ---- prebuilt replies -------------------------------------------------- */

void build_worker(struct worker *w)
{
    static const char text[] =
        "The router forwards this reply unchanged, so its text only has to be about as long as "
        "a short answer from an engine would be; it says nothing of interest, and it says it in "
        "roughly three hundred characters, which is a fair size for one short turn of a chat.";
    char body[2048];
    int n = snprintf(body, sizeof body,
        "{\"id\":\"chatcmpl-%d\",\"object\":\"chat.completion\",\"created\":1700000000,"
        "\"model\":\"%s%d\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
        "\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":64,\"total_tokens\":128},"
        "\"worker\":\"%s:%d\"}", w->port, prefix, w->model, text, address, w->port);
    putf(&w->json, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
         "X-Worker: %s:%d\r\nContent-Length: %d\r\n\r\n%s", address, w->port, n, body);

    char head[256], ev[512];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
         "Cache-Control: no-cache\r\nX-Worker: %s:%d\r\nTransfer-Encoding: chunked\r\n\r\n", address, w->port);
    const char *fmt = "data: {\"id\":\"chatcmpl-%d\",\"object\":\"chat.completion.chunk\","
        "\"created\":1700000000,\"model\":\"%s%d\",\"choices\":[{\"index\":0,\"delta\":{%s},"
        "\"logprobs\":null,\"finish_reason\":%s}]}\n\n";
    n = snprintf(ev, sizeof ev, fmt, w->port, prefix, w->model,
                 "\"role\":\"assistant\",\"content\":\" token\"", "null");
    putf(&w->first, "%s%x\r\n%s\r\n", head, n, ev);
    n = snprintf(ev, sizeof ev, fmt, w->port, prefix, w->model, "\"content\":\" token\"", "null");
    putf(&w->chunk, "%x\r\n%s\r\n", n, ev);
    putf(&w->last, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

/* One step of a chat reply: the whole JSON, or the next SSE chunk. */
void step(struct conn *c)
{
    struct worker *w = c->w;
    if (!c->stream) {
        reply(c, w->json.p, w->json.len);
        finish(c);
        return;
    }
    if (c->sent < cfg_chunks) {
        struct buf *b = c->sent ? &w->chunk : &w->first;
        c->sent++;
        n_chunks++;
        reply(c, b->p, b->len);
        if (c->dead) return;
        int64_t now = now_ns(), due = now;
        if (cfg_gap_ns) {           /* this worker's next step */
            int64_t phase = cfg_gap_ns * (w - workers) / n_workers;
            due = now + cfg_gap_ns - (now - phase) % cfg_gap_ns;
        }
        timer_at(c, due);
        return;
    }
    reply(c, w->last.p, w->last.len);
    finish(c);
}

/* ---- requests -------------------------------------------------------------- */

static const char *arg_of(const char *q, const char *qend, const char *name)
{
    const char *p = memmem(q, (size_t)(qend - q), name, strlen(name));
    return p ? p + strlen(name) : NULL;
}

static void note_unknown(const char *p, size_t n)
{
    if (n > 63) n = 63;
    for (size_t i = 0; i < 64; i++) {
        if (unknown[i].n && strlen(unknown[i].path) == n && !memcmp(unknown[i].path, p, n)) { unknown[i].n++; return; }
        if (!unknown[i].n) { memcpy(unknown[i].path, p, n); unknown[i].path[n] = 0; unknown[i].n = 1; return; }
    }
}

/* Equal prefixes of the messages get equal leading ids, as a tokenizer's would. */
static void tokens(struct conn *c, const char *p, size_t n, int render)
{
    struct buf b = {0};
    const char *m = memmem(p, n, "\"messages\"", 10);
    if (!m) m = memmem(p, n, "\"prompt\"", 8);
    if (m) { n -= (size_t)(m - p); p = m; }
    size_t count = n / 4;
    if (render)
        putf(&b, "{\"request_id\":\"r\",\"model\":\"%s%d\",\"sampling_params\":{},\"token_ids\":[", prefix, c->w->model);
    else
        putf(&b, "{\"count\":%zu,\"max_model_len\":131072,\"token_strs\":null,\"tokens\":[", count);
    need(&b, count * 7 + 16);
    for (size_t i = 0; i < count; i++) {
        uint32_t x;
        memcpy(&x, p + 4 * i, 4);
        x = (x * 2654435761u) >> 15;        /* 17 bits: a vocabulary of 131072 */
        char d[8];
        int k = 8;
        d[--k] = ',';
        do d[--k] = (char)('0' + x % 10); while (x /= 10);
        memcpy(b.p + b.len, d + k, (size_t)(8 - k));
        b.len += (size_t)(8 - k);
    }
    if (count) b.len--;
    put(&b, "]}", 2);
    simple(c, "200 OK", "application/json", b.p, b.len);
    free(b.p);
}

static void stats(struct conn *c)
{
    struct buf b = {0};
    unsigned long chat = 0, streams = 0, health = 0, other = 0, tokenized = 0;
    int used = 0;
    for (int i = 0; i < n_workers; i++) {
        chat += workers[i].chat;
        streams += workers[i].streams;
        health += workers[i].health;
        tokenized += workers[i].tokenized;
        other += workers[i].other;
        used += workers[i].chat + workers[i].streams > 0;
    }
    putf(&b, "{\"workers\":%d,\"workers_used\":%d,\"chat\":%lu,\"streams\":%lu,\"chunks\":%lu,"
         "\"health\":%lu,\"tokenized\":%lu,\"other\":%lu,\"accepted\":%lu,\"open\":%lu,\"body_bytes\":%lu,"
         "\"chunked_requests\":%lu,\"unknown\":{", n_workers, used, chat, streams, n_chunks,
         health, tokenized, other, n_accept, n_open, n_body_bytes, n_chunked_req);
    for (int i = 0; i < 64 && unknown[i].n; i++)
        putf(&b, "%s\"%s\":%lu", i ? "," : "", unknown[i].path, unknown[i].n);
    putf(&b, "},\"per_port\":[");
    for (int i = 0; i < n_workers; i++)
        putf(&b, "%s%lu", i ? "," : "", workers[i].chat + workers[i].streams);
    putf(&b, "],\"peak\":[");
    for (int i = 0; i < n_workers; i++)
        putf(&b, "%s%u", i ? "," : "", workers[i].peak);
    putf(&b, "]}");
    simple(c, "200 OK", "application/json", b.p, b.len);
    free(b.p);
}

static int eq(const char *p, size_t n, const char *s) { return strlen(s) == n && !memcmp(p, s, n); }

static int wants_stream(const char *p, size_t n)
{
    static const char key[] = "\"stream\"";
    const char *end = p + n;
    while ((p = memmem(p, (size_t)(end - p), key, sizeof key - 1))) {
        p += sizeof key - 1;
        const char *q = p;
        while (q < end && (*q == ' ' || *q == ':')) q++;
        if (end - q >= 4 && !memcmp(q, "true", 4)) return 1;
    }
    return 0;
}

void handle(struct conn *c, const char *method, size_t mlen, const char *path, size_t plen,
                   const char *body, size_t blen)
{
    struct worker *w = c->w;
    const char *q = memchr(path, '?', plen);
    const char *qend = path + plen;
    if (q) plen = (size_t)(q - path); else q = qend;
    char t[1024];
    int n;

    if (eq(method, mlen, "POST") && (eq(path, plen, "/v1/chat/completions") ||
        eq(path, plen, "/v1/completions") || eq(path, plen, "/generate"))) {
        n_body_bytes += blen;
        c->stream = wants_stream(body, blen);
        c->sent = 0;
        c->busy = 1;
        if (++w->inflight > w->peak) w->peak = w->inflight;
        if (c->stream) w->streams++; else w->chat++;
        if (cfg_delay_ns) {
            timer_at(c, now_ns() + cfg_delay_ns);
        } else {
            step(c);
        }
        return;
    }
    if (eq(path, plen, "/tokenize") || eq(path, plen, "/v1/chat/completions/render")) {
        w->tokenized++;
        tokens(c, body, blen, plen > 9);
    } else if (eq(path, plen, "/health") || eq(path, plen, "/health_generate") || eq(path, plen, "/ping")) {
        w->health++;
        simple(c, "200 OK", "text/plain", "", 0);
    } else if (eq(path, plen, "/v1/models")) {
        w->other++;
        n = snprintf(t, sizeof t, "{\"object\":\"list\",\"data\":[{\"id\":\"%s%d\",\"object\":\"model\","
            "\"created\":1700000000,\"owned_by\":\"%s\",\"root\":\"/models/%s%d\",\"parent\":null,"
            "\"max_model_len\":131072}]}", prefix, w->model, engine, prefix, w->model);
        simple(c, "200 OK", "application/json", t, (size_t)n);
    } else if (eq(path, plen, "/version")) {
        w->other++;
        n = snprintf(t, sizeof t, "{\"version\":\"0.11.0\"}");
        simple(c, "200 OK", "application/json", t, (size_t)n);
    } else if (eq(path, plen, "/server_info") || eq(path, plen, "/get_server_info") ||
               eq(path, plen, "/model_info") || eq(path, plen, "/get_model_info")) {
        w->other++;
        n = snprintf(t, sizeof t, "{\"model_id\":\"%s%d\",\"model_path\":\"/models/%s%d\",\"served_model_name\":\"%s%d\","
            "\"tokenizer_path\":\"/models/%s%d\",\"is_generation\":true,\"model_type\":\"llama\",\"tp_size\":1,"
            "\"dp_size\":1,\"pp_size\":1,\"version\":\"0.5.0\",\"context_length\":131072,"
            "\"max_running_requests\":256,\"disaggregation_mode\":\"null\"}",
            prefix, w->model, prefix, w->model, prefix, w->model, prefix, w->model);
        simple(c, "200 OK", "application/json", t, (size_t)n);
    } else if (eq(path, plen, "/metrics")) {
        w->other++;
        n = snprintf(t, sizeof t,
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"%s%d\"} %u\n"
            "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"%s%d\"} 0\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"%s%d\"} 0.1\n"
            "# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{model_name=\"%s%d\"} 0.1\n",
            prefix, w->model, w->inflight, prefix, w->model, prefix, w->model, prefix, w->model);
        simple(c, "200 OK", "text/plain; version=0.0.4", t, (size_t)n);
    } else if (eq(path, plen, "/get_load")) {
        w->other++;
        n = snprintf(t, sizeof t, "[{\"rid\":null,\"dp_rank\":0,\"num_reqs\":%u,\"num_waiting_reqs\":0,\"num_tokens\":%u}]",
                     w->inflight, w->inflight * 128);
        simple(c, "200 OK", "application/json", t, (size_t)n);
    } else if (eq(path, plen, "/load")) {
        w->other++;
        n = snprintf(t, sizeof t, "{\"server_load\":%u}", w->inflight);
        simple(c, "200 OK", "application/json", t, (size_t)n);
    } else if (eq(path, plen, "/__stats")) {
        stats(c);
    } else if (eq(path, plen, "/__reset")) {
        for (int i = 0; i < n_workers; i++) {
            struct worker *x = &workers[i];
            x->chat = x->streams = x->health = x->tokenized = x->other = 0;
            x->peak = x->inflight;
        }
        n_accept = n_chunks = n_body_bytes = n_chunked_req = 0;
        memset(unknown, 0, sizeof unknown);
        simple(c, "200 OK", "text/plain", "ok\n", 3);
    } else if (eq(path, plen, "/__set")) {
        const char *v;
        if ((v = arg_of(q, qend, "chunks="))) cfg_chunks = (unsigned)strtoul(v, NULL, 10);
        if ((v = arg_of(q, qend, "gap_us="))) cfg_gap_ns = strtoll(v, NULL, 10) * 1000;
        if ((v = arg_of(q, qend, "delay_us="))) cfg_delay_ns = strtoll(v, NULL, 10) * 1000;
        simple(c, "200 OK", "text/plain", "ok\n", 3);
    } else {
        w->other++;
        note_unknown(path, plen);
        simple(c, "404 Not Found", "application/json", "{\"detail\":\"Not Found\"}", 22);
    }
    finish(c);
}

