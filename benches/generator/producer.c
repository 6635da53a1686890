/* A producer: messages encoded once into slots, stamped and written many at a time, confirms and stalls counted. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "amqpload.h"

#define FLAG_HEADERS 0x2000u
#define FLAG_DELIVERY_MODE 0x1000u
#define FLAG_PRIORITY 0x0800u
#define FLAG_MESSAGE_ID 0x0080u
/* Slots when their sizes differ: enough that a broker sees no short cycle. */
#define SPREAD_SLOTS 2048u

static void confirm_select(Conn *c) {
  size_t at = method_begin(&c->out, 1, 85, 10);
  put8(&c->out, 0);
  call(c, at, 85, 11);
  uint64_t capacity = 1024;
  while (capacity < (uint64_t)opt.confirm * 8) capacity <<= 1;
  c->ring = calloc(capacity, sizeof *c->ring);
  c->ring_mask = capacity - 1;
}

static void encode_publish(const Conn *c, Buf *b, unsigned slot) {
  char exchange[256], key[256] = "";
  exchange_name(exchange, sizeof exchange);
  if (opt.topic_keys) routing_key(key, sizeof key, slot % opt.topic_keys);
  else if (!opt.fanout) queue_name(key, sizeof key, opt.dead_letters ? SOURCE : c->index % opt.queues);
  size_t at = method_begin(b, 1, 60, 40);
  put16(b, 0);
  put_short_string(b, exchange);
  put_short_string(b, key);
  put8(b, opt.mandatory ? 1 : 0);
  frame_end(b, at);
}

/* The headers of a message; their values are stamped later. */
static void encode_table(Buf *b, Slot *s) {
  size_t table = b->len;
  put32(b, 0);
  if (opt.cycle) {
    size_t name = (size_t)(strchr(opt.cycle, '=') - opt.cycle);
    put8(b, (unsigned)name);
    put_raw(b, opt.cycle, name);
    put8(b, 'S');
    put32(b, CYCLE_DIGITS);
    s->cycle = b->len;
    put64(b, 0);
  }
  if (opt.delay) {
    put_short_string(b, "x-delay");
    put8(b, 'l');
    s->delay = b->len;
    put64(b, 0);
  }
  buf_set32(b, table, (uint32_t)(b->len - table - 4));
}

/* Properties out of a file. */
static void put_properties(Buf *b, Slot *s) {
  static uint8_t raw[4096];
  static size_t size;
  if (!size) {
    FILE *file = fopen(opt.properties, "rb");
    if (file) size = fread(raw, 1, sizeof raw, file);
    if (!size) {
      fprintf(stderr, "amqpload: %s cannot be read\n", opt.properties);
      exit(1);
    }
    fclose(file);
  }
  unsigned marks = 0, ids = 0;
  for (size_t i = 0; i < size; i++) {
    marks = raw[i] == ID_MARK ? marks + 1 : 0;
    if (marks < MESSAGE_ID_DIGITS || ids == IDS_MAX) continue;
    s->ids[ids++] = b->len + i + 1 - MESSAGE_ID_DIGITS;
    marks = 0;
  }
  put_raw(b, (const char *)raw, size);
}

static void encode_header(Buf *b, Slot *s) {
  put8(b, 2);
  put16(b, 1);
  size_t at = b->len;
  put32(b, 0);
  put16(b, 60);
  put16(b, 0);
  put64(b, s->size);
  if (opt.properties) {
    put_properties(b, s);
    frame_end(b, at);
    return;
  }
  put16(b, FLAG_DELIVERY_MODE | (opt.cycle || opt.delay ? FLAG_HEADERS : 0) | (opt.priorities ? FLAG_PRIORITY : 0) |
               (opt.unique_ids ? FLAG_MESSAGE_ID : 0));
  if (opt.cycle || opt.delay) encode_table(b, s);
  put8(b, opt.persistent ? 2 : 1);
  if (opt.priorities) {
    s->priority = b->len;
    put8(b, 0);
  }
  if (opt.unique_ids) {
    put8(b, MESSAGE_ID_DIGITS);
    s->ids[0] = b->len;
    for (unsigned i = 0; i < MESSAGE_ID_DIGITS; i++) put8(b, '0');
  }
  frame_end(b, at);
}

static void encode_body(const Conn *c, Buf *b, Slot *s) {
  unsigned left = s->size;
  while (left) {
    unsigned n = left > c->frame_max - 8 ? c->frame_max - 8 : left;
    put8(b, 3);
    put16(b, 1);
    put32(b, n);
    if (left == s->size) s->body = b->len;
    buf_need(b, n);
    memset(b->p + b->len, 'x', n);
    b->len += n;
    put8(b, 0xCE);
    left -= n;
  }
  b->p[s->body + 8] = (uint8_t)(c->index >> 8);
  b->p[s->body + 9] = (uint8_t)c->index;
}

/* Number n of a row that looks random and is the same in every run. */
static uint64_t scattered(uint64_t n) {
  uint64_t x = (n + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 31);
}

static unsigned slot_size(unsigned slot) {
  if (!opt.size_spread) return opt.size;
  return opt.size - opt.size_spread + (unsigned)(scattered(slot) % (2 * opt.size_spread + 1));
}

static void encode_slots(Conn *c) {
  unsigned fits = opt.batch / (opt.size + 100);
  c->slots_per_write = fits < 1 ? 1 : fits > SLOTS_MAX ? SLOTS_MAX : fits;
  c->slot_count = c->slots_per_write;
  if (opt.size_spread && c->slot_count < SPREAD_SLOTS) c->slot_count = SPREAD_SLOTS;
  if (c->slot_count < opt.topic_keys) c->slot_count = opt.topic_keys;
  if (opt.topic_keys) c->slot_count -= c->slot_count % opt.topic_keys;
  c->slots = calloc(c->slot_count + 1, sizeof *c->slots);
  for (unsigned i = 0; i < c->slot_count; i++) {
    Slot *s = &c->slots[i];
    s->at = c->batch.len;
    s->size = slot_size(i);
    encode_publish(c, &c->batch, i);
    encode_header(&c->batch, s);
    encode_body(c, &c->batch, s);
  }
  c->slots[c->slot_count].at = c->batch.len;
}

void producer_setup(Conn *c) {
  if (opt.confirm) confirm_select(c);
  encode_slots(c);
  c->next_tag = c->low_tag = 1;
  c->target = opt.count ? opt.count : UINT64_MAX;
  c->per_ns = opt.rate > 0 ? opt.rate / opt.producers / 1e9 : 0;
  c->phase = (double)c->index / opt.producers;
  c->writable = 1;
}

/* When the next message is due, with --rate. */
static uint64_t due_at(const Conn *c, uint64_t sequence) {
  return run.t_start + (uint64_t)(((double)(sequence + 1) - c->phase) / c->per_ns);
}

uint64_t producer_due(const Conn *c) { return due_at(c, c->sent); }

static int past_the_end(const Conn *c, uint64_t now) {
  return c->sent >= c->target || (opt.seconds > 0 && now >= run.window_end);
}

/* How many messages may be written now. */
static unsigned sendable(const Conn *c, uint64_t now) {
  if (c->done || past_the_end(c, now)) return 0;
  uint64_t n = c->slot_count - c->next_slot;
  if (c->slots_per_write < n) n = c->slots_per_write;
  if (c->target - c->sent < n) n = c->target - c->sent;
  if (opt.confirm) {
    uint64_t window = c->outstanding >= opt.confirm ? 0 : opt.confirm - c->outstanding;
    uint64_t room = c->ring_mask + 1 - (c->next_tag - c->low_tag);
    if (window < n) n = window;
    if (room < n) n = room;
  }
  if (c->per_ns > 0) {
    uint64_t due = (uint64_t)((double)(now - run.t_start) * c->per_ns + c->phase);
    uint64_t late = due > c->sent ? due - c->sent : 0;
    if (late < n) n = late;
  }
  return (unsigned)n;
}

/* The message-id is the sequence number and the producer in hexadecimal, low digits first: what matters is
 * that no two messages have the same one, near the front as well as as a whole. */
static void stamp_id(uint8_t *id, uint64_t sequence, unsigned producer) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < 16; i++, sequence >>= 4) id[i] = (uint8_t)digits[sequence & 15];
  for (int i = 16; i < 20; i++, producer >>= 4) id[i] = (uint8_t)digits[producer & 15];
}

static void stamp_cycle(uint8_t *digits, uint64_t value) {
  for (unsigned i = CYCLE_DIGITS; i-- > 0; value /= 10) digits[i] = (uint8_t)('0' + value % 10);
}

/* What differs from message to message besides the body. Returns the delay in milliseconds. */
static uint64_t stamp_header(const Conn *c, const Slot *s, uint64_t sequence) {
  uint8_t *p = c->batch.p;
  for (unsigned i = 0; i < IDS_MAX && s->ids[i]; i++) stamp_id(p + s->ids[i], sequence, (unsigned)c->index);
  if (s->priority) p[s->priority] = (uint8_t)(sequence % (unsigned)opt.priorities);
  if (s->cycle) stamp_cycle(p + s->cycle, sequence % opt.cycle_values);
  if (!s->delay) return 0;
  uint64_t delay = opt.delay_low + scattered(sequence) % (opt.delay_high - opt.delay_low + 1);
  set64(p + s->delay, delay);
  return delay;
}

static void stamp(Conn *c, unsigned n, uint64_t now) {
  for (unsigned i = 0; i < n; i++) {
    const Slot *s = &c->slots[c->next_slot + i];
    uint8_t *body = c->batch.p + s->body;
    uint64_t sequence = c->sent + i, t = now;
    if (c->per_ns > 0) t = due_at(c, sequence);
    if (t > now) t = now;
    set64(body, t + stamp_header(c, s, sequence) * 1000000);
    for (int k = 0; k < 6; k++) body[10 + k] = (uint8_t)(sequence >> (40 - 8 * k));
    if (opt.confirm) c->ring[c->next_tag++ & c->ring_mask] = t;
  }
  c->write_pos = c->slots[c->next_slot].at;
  c->write_end = c->slots[c->next_slot + n].at;
  if (opt.confirm) c->outstanding += n;
  c->sent += n;
  /* Slots that differ are sent in turn; equal ones always from the first, which stays in the cache. */
  if (opt.size_spread || opt.topic_keys) c->next_slot = (c->next_slot + n) % c->slot_count;
}

/* Keeps the longest time between two writes: how long the broker held a flat-out producer back. */
void producer_note_write(Conn *c, uint64_t now) {
  uint64_t since = c->t_last_write ? c->t_last_write : run.t_start;
  if (now > since && now - since > run.stall_max_ns) run.stall_max_ns = now - since;
  c->t_last_write = now;
}

/* True if it did something, so that the loop should not sleep. */
int producer_pump(Conn *c, uint64_t now) {
  if (!c->writable) return 0;
  if (c->write_pos == c->write_end) {
    unsigned n = sendable(c, now);
    if (!n) {
      if (past_the_end(c, now) && !c->done && (!opt.confirm || !c->outstanding)) {
        c->done = 1;
        c->t_done = now_ns();
      }
      return 0;
    }
    stamp(c, n, now);
  }
  ssize_t w = write(c->fd, c->batch.p + c->write_pos, c->write_end - c->write_pos);
  run.writes++;
  if (w < 0) {
    if (errno == EAGAIN) c->writable = 0;
    /* Any other error: what the broker said before it closed is read first, then the read fails. */
    return errno == EINTR;
  }
  producer_note_write(c, now);
  c->write_pos += (size_t)w;
  if (c->write_pos < c->write_end) c->writable = 0; /* a short write: wait for the EPOLLOUT edge */
  return 1;
}

static void confirm_one(Conn *c, uint64_t tag, uint64_t now, int nack) {
  uint64_t *sent_at = &c->ring[tag & c->ring_mask];
  if (!*sent_at) return;
  histogram_add(&run.confirm, now > *sent_at ? now - *sent_at : 0);
  *sent_at = 0;
  c->outstanding--;
  if (nack) run.nacked++;
  else run.confirmed++;
}

void on_confirm(Conn *c, uint64_t tag, int multiple, uint64_t now, int nack) {
  if (multiple) {
    uint64_t high = tag ? tag : c->next_tag - 1;
    for (uint64_t t = c->low_tag; t <= high; t++) confirm_one(c, t, now, nack);
  } else
    confirm_one(c, tag, now, nack);
  while (c->low_tag < c->next_tag && !c->ring[c->low_tag & c->ring_mask]) c->low_tag++;
}
