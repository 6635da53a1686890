/* A consumer: deliveries parsed in place, acknowledged in batches or at a given pace, sequence numbers checked. */
#include <errno.h>
#include <unistd.h>

#include "amqpload.h"

/* A delivery this much before its message is due is early; a broker may count in whole milliseconds. */
#define EARLY_NS 2000000ull

/* --verify: one bitmap of sequence numbers per producer. */
static uint8_t **seen;
static uint64_t *seen_bytes, *expected_next;

/* Order is kept among messages of one producer and of one priority or group, of which there are so many. */
static uint64_t order_classes(void) {
  return opt.cycle ? opt.cycle_values : opt.priorities ? (uint64_t)opt.priorities : 1;
}

void verify_setup(void) {
  seen = calloc(PRODUCERS_VERIFIED, sizeof *seen);
  seen_bytes = calloc(PRODUCERS_VERIFIED, sizeof *seen_bytes);
  /* Untouched pages of it cost nothing. */
  expected_next = calloc(PRODUCERS_VERIFIED * order_classes(), sizeof *expected_next);
  run.highest = calloc(PRODUCERS_VERIFIED, sizeof *run.highest);
}

static void verify(const uint8_t *body) {
  unsigned p = get16(body + 8);
  uint64_t sequence = get64(body + 8) & 0xffffffffffffull;
  if (p >= PRODUCERS_VERIFIED || sequence > (1ull << 34)) return;
  if (sequence / 8 >= seen_bytes[p]) {
    uint64_t bytes = seen_bytes[p] ? seen_bytes[p] : 65536;
    while (sequence / 8 >= bytes) bytes *= 2;
    seen[p] = realloc(seen[p], bytes);
    memset(seen[p] + seen_bytes[p], 0, bytes - seen_bytes[p]);
    seen_bytes[p] = bytes;
  }
  if (seen[p][sequence / 8] & (1 << (sequence & 7))) run.duplicates++;
  else {
    seen[p][sequence / 8] |= (uint8_t)(1 << (sequence & 7));
    run.distinct++;
  }
  uint64_t *next = &expected_next[p * order_classes() + sequence % order_classes()];
  if (sequence < *next && !opt.delay) run.out_of_order++;
  *next = sequence + 1;
  if (sequence + 1 > run.highest[p]) run.highest[p] = sequence + 1;
}

/* ack and nack (without requeue) differ in the method's number only. */
static void put_ack(Conn *c, uint64_t tag, int multiple) {
  uint8_t frame[21] = {1, 0, 1, 0, 0, 0, 13, 0, 60, 0, c->role == REJECTER ? 120 : 80};
  set64(frame + 11, tag);
  frame[19] = (uint8_t)multiple;
  frame[20] = 0xCE;
  put_raw(&c->out, frame, sizeof frame);
  c->acked_tag = tag;
}

void consumer_ack_pending(Conn *c, uint64_t now) {
  if (!c->unacked) return;
  put_ack(c, c->last_tag, opt.ack_every > 1);
  c->unacked = 0;
  c->t_last_ack = now;
}

/* With --consume-rate: delivery tags count up from 1, so the tag that is due is the number of messages due. */
void consumer_ack_paced(Conn *c, uint64_t now) {
  uint64_t due = (uint64_t)((double)(now - run.t_start) * opt.consume_rate / opt.consumers / 1e9);
  if (due > c->last_tag) due = c->last_tag;
  if (due < c->acked_tag + opt.ack_every) return;
  c->unacked -= due - c->acked_tag;
  put_ack(c, due, 1);
  flush_out(c);
}

static inline void got_message(Conn *c, uint64_t now) {
  c->got++;
  if (c->role == REJECTER) run.rejected++;
  else run.consumed++;
  if (opt.auto_ack && c->role == CONSUMER) return;
  c->unacked++;
  if (opt.consume_rate > 0) return;
  if (opt.ack_every <= 1) {
    put_ack(c, c->last_tag, 0);
    c->unacked = 0;
  } else if (c->unacked >= opt.ack_every)
    consumer_ack_pending(c, now);
}

static void on_method(Conn *c, const uint8_t *f, size_t n, uint64_t now) {
  switch (get32(f + 7)) {
  case 60u << 16 | 60: c->last_tag = get64(f + 12 + f[11]); break; /* deliver */
  case 60u << 16 | 80: on_confirm(c, get64(f + 11), f[19] & 1, now, 0); break;
  case 60u << 16 | 120: on_confirm(c, get64(f + 11), f[19] & 1, now, 1); break;
  case 60u << 16 | 50: run.returned++; break;
  case 60u << 16 | 30: die(2, "consumer cancelled by broker (queue deleted?)%s", ""); break;
  case 10u << 16 | 60: run.blocked++; break;
  default: check_close(c, f, n);
  }
}

static void on_body(Conn *c, const uint8_t *body, size_t n, uint64_t now) {
  if (c->want_first) {
    c->want_first = 0;
    if (n >= STAMP_BYTES && c->role == CONSUMER) {
      uint64_t due = get64(body);
      histogram_add(&run.end_to_end, now > due ? now - due : 0);
      if (due > now + EARLY_NS) run.early++;
      if (opt.verify) verify(body);
    }
  }
  c->body_left -= n;
  if (!c->body_left) got_message(c, now);
}

void on_frames(Conn *c) {
  size_t pos = 0, n;
  uint64_t now = run.t_read;
  while ((n = frame_at(c, pos))) {
    uint8_t *f = c->in + pos;
    if (f[0] == 1) on_method(c, f, n, now);
    else if (f[0] == 2 && c->role != PRODUCER) {
      c->body_left = get64(f + 11);
      c->want_first = 1;
      if (!c->body_left) got_message(c, now);
    } else if (f[0] == 3 && c->role != PRODUCER)
      on_body(c, f + 7, n - 8, now);
    pos += n;
  }
  if (pos) {
    memmove(c->in, c->in + pos, c->in_len - pos);
    c->in_len -= pos;
  }
}

void on_readable(Conn *c) {
  for (int k = 0; k < 64; k++) {
    size_t room = READ_BUFFER - c->in_len;
    ssize_t r = read(c->fd, c->in + c->in_len, room);
    run.reads++;
    if (r < 0 && errno == EINTR) continue;
    if (r < 0 && errno == EAGAIN) return;
    if (r < 0) die(3, "connection lost: %s", strerror(errno));
    if (r == 0) die(3, "connection lost: broker closed the socket%s", "");
    c->in_len += (size_t)r;
    run.t_read = now_ns();
    uint64_t before = c->got;
    on_frames(c);
    if (c->got != before) {
      run.t_last = run.t_read;
      if (opt.prefetch && c->unacked >= opt.prefetch && opt.consume_rate <= 0) consumer_ack_pending(c, run.t_read);
      if (c->out.len) flush_out(c);
    }
    if ((size_t)r < room) return; /* a short read: the socket is empty */
  }
}

void consumer_setup(Conn *c) {
  char queue[256];
  queue_name(queue, sizeof queue, c->role == REJECTER ? SOURCE : c->index % opt.queues);
  if (opt.prefetch) {
    size_t at = method_begin(&c->out, 1, 60, 10);
    put32(&c->out, 0);
    put16(&c->out, opt.prefetch);
    put8(&c->out, 0);
    call(c, at, 60, 11);
  }
  size_t at = method_begin(&c->out, 1, 60, 20);
  put16(&c->out, 0);
  put_short_string(&c->out, queue);
  put_short_string(&c->out, "c");
  put8(&c->out, opt.auto_ack && c->role == CONSUMER ? 2 : 0);
  put32(&c->out, 0);
  call(c, at, 60, 21);
}
