/* The queues, the exchange and the bindings of a run. */
#include <stdio.h>

#include "amqpload.h"

#define NAME_BYTES 256

void queue_name(char *s, size_t n, int index) {
  if (index == SOURCE) snprintf(s, n, "%s-source", opt.prefix);
  else snprintf(s, n, "%s-%d", opt.prefix, index);
}

/* The type of the exchange to publish to, or NULL for the default exchange. */
static const char *exchange_type(void) {
  return opt.fanout ? "fanout" : opt.topic_keys ? "topic" : opt.delay ? "x-delayed-message" : NULL;
}

void exchange_name(char *s, size_t n) {
  s[0] = 0;
  if (exchange_type()) snprintf(s, n, "%s-%s", opt.prefix, exchange_type());
}

/* Key k of --topic: every key is different, and each reaches exactly one queue, by `load.*.QUEUE.#`. */
void routing_key(char *s, size_t n, unsigned key) {
  snprintf(s, n, "load.%u.%u.event", key, key % (unsigned)opt.queues);
}

static void put_text_arg(Buf *b, const char *key, const char *value) {
  put_short_string(b, key);
  put8(b, 'S');
  put_long_string(b, value, strlen(value));
}

static void put_queue_args(Buf *b, int index) {
  size_t at = b->len;
  put32(b, 0);
  if (index == SOURCE) {
    char target[NAME_BYTES];
    queue_name(target, sizeof target, 0);
    put_text_arg(b, "x-dead-letter-exchange", "");
    put_text_arg(b, "x-dead-letter-routing-key", target);
  }
  /* The dead letters' own queue is a plain one. */
  int plain = opt.dead_letters && index != SOURCE;
  for (int i = 0; !plain && i < opt.queue_arg_count; i++) {
    char key[NAME_BYTES];
    const char *equals = strchr(opt.queue_args[i], '='), *value = equals + 1;
    char *end;
    snprintf(key, sizeof key, "%.*s", (int)(equals - opt.queue_args[i]), opt.queue_args[i]);
    long long number = strtoll(value, &end, 10);
    if (*value && !*end) {
      put_short_string(b, key);
      put8(b, 'l');
      put64(b, (uint64_t)number);
    } else if (!strcmp(value, "true") || !strcmp(value, "false")) {
      put_short_string(b, key);
      put8(b, 't');
      put8(b, value[0] == 't');
    } else
      put_text_arg(b, key, value);
  }
  buf_set32(b, at, (uint32_t)(b->len - at - 4));
}

/* Returns the message count of declare-ok. */
uint64_t queue_declare(Conn *c, int index, int passive) {
  char name[NAME_BYTES];
  queue_name(name, sizeof name, index);
  size_t at = method_begin(&c->out, 1, 50, 10);
  put16(&c->out, 0);
  put_short_string(&c->out, name);
  put8(&c->out, (passive ? 1 : 0) | (opt.durable ? 2 : 0));
  if (passive) put32(&c->out, 0);
  else put_queue_args(&c->out, index);
  frame_end(&c->out, at);
  flush_sync(c);
  uint8_t *args = expect(c, 50, 11);
  uint64_t n = get32(args + 1 + args[0]);
  free(args);
  return n;
}

static void exchange_declare_and_bind(Conn *c) {
  char exchange[NAME_BYTES], queue[NAME_BYTES], key[NAME_BYTES] = "";
  exchange_name(exchange, sizeof exchange);
  size_t at = method_begin(&c->out, 1, 40, 10);
  put16(&c->out, 0);
  put_short_string(&c->out, exchange);
  put_short_string(&c->out, exchange_type());
  put8(&c->out, opt.durable ? 2 : 0);
  size_t table = c->out.len;
  put32(&c->out, 0);
  if (opt.delay) put_text_arg(&c->out, "x-delayed-type", "direct");
  buf_set32(&c->out, table, (uint32_t)(c->out.len - table - 4));
  call(c, at, 40, 11);
  for (int i = 0; i < opt.queues; i++) {
    queue_name(queue, sizeof queue, i);
    if (opt.topic_keys) snprintf(key, sizeof key, "load.*.%d.#", i);
    else if (opt.delay) queue_name(key, sizeof key, i);
    at = method_begin(&c->out, 1, 50, 20);
    put16(&c->out, 0);
    put_short_string(&c->out, queue);
    put_short_string(&c->out, exchange);
    put_short_string(&c->out, key);
    put8(&c->out, 0);
    put32(&c->out, 0);
    call(c, at, 50, 21);
  }
}

static int first_queue(void) { return opt.dead_letters ? SOURCE : 0; }

void topology_declare(Conn *c) {
  for (int i = first_queue(); i < opt.queues; i++) queue_declare(c, i, 0);
  if (exchange_type()) exchange_declare_and_bind(c);
}

/* queue.purge and queue.delete differ in the method's number only. */
static void for_each_queue(Conn *c, unsigned method_id) {
  char name[NAME_BYTES];
  for (int i = first_queue(); i < opt.queues; i++) {
    queue_name(name, sizeof name, i);
    size_t at = method_begin(&c->out, 1, 50, method_id);
    put16(&c->out, 0);
    put_short_string(&c->out, name);
    put8(&c->out, 0);
    call(c, at, 50, method_id + 1);
  }
}

void topology_purge(Conn *c) { for_each_queue(c, 30); }

void topology_delete(Conn *c) {
  char exchange[NAME_BYTES];
  for_each_queue(c, 40);
  exchange_name(exchange, sizeof exchange);
  if (!exchange[0]) return;
  size_t at = method_begin(&c->out, 1, 40, 20);
  put16(&c->out, 0);
  put_short_string(&c->out, exchange);
  put8(&c->out, 0);
  call(c, at, 40, 21);
}

uint64_t topology_depth(Conn *c) {
  uint64_t total = 0;
  for (int i = first_queue(); i < opt.queues; i++) total += queue_declare(c, i, 1);
  return total;
}
