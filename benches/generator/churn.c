/* --churn: what clients make and drop again. Each cycle is a connection with two channels, an auto-delete exchange and
 * queue, a binding with its own routing key, a consumer, and a request and its reply by direct reply-to. */
#include <stdio.h>
#include <unistd.h>

#include "amqpload.h"

#define FLAG_DELIVERY_MODE 0x1000u
#define FLAG_REPLY_TO 0x0200u
#define REPLY_TO "amq.rabbitmq.reply-to"
#define NAME_BYTES 128

static void declare(Conn *c, const char *exchange, const char *queue, const char *key) {
  Buf *b = &c->out;
  size_t at = method_begin(b, 1, 40, 10); /* exchange.declare, auto-delete */
  put16(b, 0);
  put_short_string(b, exchange);
  put_short_string(b, "topic");
  put8(b, opt.durable ? 6 : 4);
  put32(b, 0);
  call(c, at, 40, 11);
  at = method_begin(b, 1, 50, 10); /* queue.declare, auto-delete */
  put16(b, 0);
  put_short_string(b, queue);
  put8(b, opt.durable ? 10 : 8);
  put32(b, 0);
  call(c, at, 50, 11);
  at = method_begin(b, 1, 50, 20); /* queue.bind */
  put16(b, 0);
  put_short_string(b, queue);
  put_short_string(b, exchange);
  put_short_string(b, key);
  put8(b, 0);
  put32(b, 0);
  call(c, at, 50, 21);
}

static void consume(Conn *c, const char *queue, const char *tag) {
  size_t at = method_begin(&c->out, 1, 60, 20);
  put16(&c->out, 0);
  put_short_string(&c->out, queue);
  put_short_string(&c->out, tag);
  put8(&c->out, 2);
  put32(&c->out, 0);
  call(c, at, 60, 21);
}

static void publish(Conn *c, const char *exchange, const char *key, const char *reply_to) {
  static const uint8_t body[STAMP_BYTES];
  Buf *b = &c->out;
  size_t at = method_begin(b, 1, 60, 40);
  put16(b, 0);
  put_short_string(b, exchange);
  put_short_string(b, key);
  put8(b, 0);
  frame_end(b, at);
  put8(b, 2);
  put16(b, 1);
  at = b->len;
  put32(b, 0);
  put16(b, 60);
  put16(b, 0);
  put64(b, sizeof body);
  put16(b, (opt.persistent ? FLAG_DELIVERY_MODE : 0) | (reply_to ? FLAG_REPLY_TO : 0));
  if (opt.persistent) put8(b, 2);
  if (reply_to) put_short_string(b, reply_to);
  frame_end(b, at);
  put8(b, 3);
  put16(b, 1);
  put32(b, sizeof body);
  put_raw(b, body, sizeof body);
  put8(b, 0xCE);
  flush_sync(c);
}

/* The reply-to of the message whose delivery has just been expected: its header is the next frame. */
static void await_content(Conn *c, char *reply_to) {
  size_t header, body;
  while (!(header = frame_at(c, 0)) || !(body = frame_at(c, header))) {
    ssize_t r = read(c->fd, c->in + c->in_len, READ_BUFFER - c->in_len);
    if (r <= 0) die(3, "connection lost%s", "");
    c->in_len += (size_t)r;
  }
  const uint8_t *properties = c->in + 19, *text = properties + (opt.persistent ? 3 : 2);
  reply_to[0] = 0;
  if (get16(properties) & FLAG_REPLY_TO) {
    memcpy(reply_to, text + 1, text[0]);
    reply_to[text[0]] = 0;
  }
  memmove(c->in, c->in + header + body, c->in_len - header - body);
  c->in_len -= header + body;
}

static void second_channel(Conn *c) {
  size_t at = method_begin(&c->out, 2, 20, 10); /* channel.open */
  put_short_string(&c->out, "");
  call(c, at, 20, 11);
  at = method_begin(&c->out, 2, 20, 40); /* channel.close */
  put16(&c->out, 200);
  put_short_string(&c->out, "bye");
  put32(&c->out, 0);
  call(c, at, 20, 41);
}

static void cycle(uint64_t number) {
  char exchange[NAME_BYTES], queue[NAME_BYTES], key[NAME_BYTES], reply_to[256];
  unsigned long long n = number;
  snprintf(exchange, sizeof exchange, "%s-x-%llu-%d", opt.prefix, n, (int)getpid());
  snprintf(queue, sizeof queue, "%s-q-%llu-%d", opt.prefix, n, (int)getpid());
  snprintf(key, sizeof key, "key.%llu.%d", n, (int)getpid());
  Conn *c = conn_open(PRODUCER, 0);
  second_channel(c);
  declare(c, exchange, queue, key);
  consume(c, queue, "requests");
  consume(c, REPLY_TO, "replies");
  publish(c, exchange, key, REPLY_TO);
  free(expect(c, 60, 60));
  await_content(c, reply_to);
  publish(c, "", reply_to, NULL);
  free(expect(c, 60, 60));
  await_content(c, reply_to);
  conn_close(c);
  free(c->in);
  free(c->out.p);
  free(c);
}

void churn(void) {
  Conn *counted = calloc(1, sizeof *counted);
  counted->role = PRODUCER;
  conns = calloc(1, sizeof *conns);
  conns[conn_count++] = counted;
  run.t_start = now_ns();
  run.window_end = run.t_start + (uint64_t)(opt.seconds * 1e9);
  while (opt.count ? run.consumed < opt.count : now_ns() < run.window_end) {
    uint64_t began = now_ns();
    cycle(run.consumed);
    run.t_last = now_ns();
    histogram_add(&run.end_to_end, run.t_last - began);
    run.consumed++;
  }
  run.consumed_in_window = run.expected = counted->sent = run.consumed;
}
