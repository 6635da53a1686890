/* --rpc N: so many clients ask and wait for the answer, by direct reply-to; one server answers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "amqpload.h"

#define EVENTS 256
#define WAIT_MS 100
#define FLAG_REPLY_TO 0x0200u
#define REPLY_TO "amq.rabbitmq.reply-to"
/* How long an answer may take. */
#define ANSWER_NS 10000000000ull

static void put_publish(Buf *b, const char *key, size_t key_bytes, const char *reply_to, const uint8_t *body, size_t n) {
  size_t at = method_begin(b, 1, 60, 40);
  put16(b, 0);
  put_short_string(b, "");
  put8(b, (unsigned)key_bytes);
  put_raw(b, key, key_bytes);
  put8(b, 0);
  frame_end(b, at);
  put8(b, 2);
  put16(b, 1);
  at = b->len;
  put32(b, 0);
  put16(b, 60);
  put16(b, 0);
  put64(b, n);
  put16(b, reply_to ? FLAG_REPLY_TO : 0);
  if (reply_to) put_short_string(b, reply_to);
  frame_end(b, at);
  put8(b, 3);
  put16(b, 1);
  put32(b, (uint32_t)n);
  put_raw(b, body, n);
  put8(b, 0xCE);
}

static void consume(Conn *c, const char *queue) {
  size_t at = method_begin(&c->out, 1, 60, 20);
  put16(&c->out, 0);
  put_short_string(&c->out, queue);
  put_short_string(&c->out, "c");
  put8(&c->out, 2);
  put32(&c->out, 0);
  call(c, at, 60, 21);
}

static void ask(Conn *c, uint64_t now) {
  static uint8_t body[65536];
  char queue[256];
  queue_name(queue, sizeof queue, 0);
  set64(body, now);
  put_publish(&c->out, queue, strlen(queue), REPLY_TO, body, opt.size);
  c->sent++;
  flush_out(c);
}

/* The address for the answer, out of a content header whose only property it is. */
static void keep_address(Conn *c, const uint8_t *f) {
  if (get16(f + 19) != FLAG_REPLY_TO) die(3, "a request without reply-to%s", "");
  memcpy(c->address, f + 22, f[21]);
  c->address_bytes = f[21];
}

static void on_message(Conn *c, const uint8_t *body, size_t n, uint64_t now) {
  if (c->role == CONSUMER) {
    put_publish(&c->out, c->address, c->address_bytes, NULL, body, n);
    return;
  }
  uint64_t asked = get64(body);
  histogram_add(&run.end_to_end, now > asked ? now - asked : 0);
  run.consumed++;
  run.t_last = now;
  if (now < run.window_end) {
    run.consumed_in_window++;
    ask(c, now);
  } else
    c->done = 1;
}

static void on_rpc_readable(Conn *c) {
  ssize_t r = read(c->fd, c->in + c->in_len, READ_BUFFER - c->in_len);
  run.reads++;
  if (r < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (r <= 0) die(3, "connection lost: %s", r ? strerror(errno) : "broker closed the socket");
  c->in_len += (size_t)r;
  uint64_t now = now_ns();
  size_t pos = 0, n;
  while ((n = frame_at(c, pos))) {
    const uint8_t *f = c->in + pos;
    check_close(c, f, n);
    if (f[0] == 2 && c->role == CONSUMER) keep_address(c, f);
    else if (f[0] == 3) on_message(c, f + 7, n - 8, now);
    pos += n;
  }
  memmove(c->in, c->in + pos, c->in_len - pos);
  c->in_len -= pos;
  if (c->out.len) flush_out(c);
}

void rpc(void) {
  struct epoll_event events[EVENTS];
  int waiting = opt.rpc, epoll_fd = epoll_create1(0);
  char queue[256];
  queue_name(queue, sizeof queue, 0);
  conns = calloc((size_t)opt.rpc + 1, sizeof *conns);
  for (int i = 0; i <= opt.rpc; i++) {
    Conn *c = conns[conn_count++] = conn_open(i < opt.rpc ? PRODUCER : CONSUMER, i);
    consume(c, i < opt.rpc ? REPLY_TO : queue);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev);
  }
  run.t_start = now_ns();
  run.window_end = run.t_start + (uint64_t)(opt.seconds * 1e9);
  for (int i = 0; i < opt.rpc; i++) ask(conns[i], now_ns());
  while (waiting && now_ns() < run.window_end + ANSWER_NS) {
    int n = epoll_wait(epoll_fd, events, EVENTS, WAIT_MS);
    for (int i = 0; i < n; i++) on_rpc_readable(events[i].data.ptr);
    waiting = 0;
    for (int i = 0; i < opt.rpc; i++) waiting += !conns[i]->done;
  }
  if (waiting) snprintf(run.error, sizeof run.error, "%d requests were not answered", waiting);
  run.expected = run.consumed;
  for (int i = 0; i < conn_count; i++) conn_close(conns[i]);
}
