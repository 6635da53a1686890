/* Big-endian reads, and a growing buffer that AMQP methods are encoded into. */
#ifndef AMQPLOAD_BYTES_H
#define AMQPLOAD_BYTES_H

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint8_t *p;
  size_t len, cap;
} Buf;

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t get32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return ntohl(v);
}
static inline uint64_t get64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return __builtin_bswap64(v);
}
static inline void set64(uint8_t *p, uint64_t v) {
  v = __builtin_bswap64(v);
  memcpy(p, &v, 8);
}

static inline void buf_need(Buf *b, size_t n) {
  if (b->len + n <= b->cap) return;
  b->cap = (b->len + n) * 2 + 256;
  b->p = realloc(b->p, b->cap);
  if (!b->p) abort();
}
static inline void put_raw(Buf *b, const void *d, size_t n) {
  buf_need(b, n);
  memcpy(b->p + b->len, d, n);
  b->len += n;
}
static inline void put8(Buf *b, unsigned v) {
  buf_need(b, 1);
  b->p[b->len++] = (uint8_t)v;
}
static inline void put16(Buf *b, unsigned v) {
  put8(b, v >> 8);
  put8(b, v & 255);
}
static inline void put32(Buf *b, uint32_t v) {
  put16(b, v >> 16);
  put16(b, v & 65535);
}
static inline void put64(Buf *b, uint64_t v) {
  put32(b, (uint32_t)(v >> 32));
  put32(b, (uint32_t)v);
}
static inline void put_short_string(Buf *b, const char *s) {
  size_t n = strlen(s);
  put8(b, (unsigned)n);
  put_raw(b, s, n);
}
static inline void put_long_string(Buf *b, const void *s, size_t n) {
  put32(b, (uint32_t)n);
  put_raw(b, s, n);
}
static inline void buf_set32(Buf *b, size_t at, uint32_t v) {
  v = htonl(v);
  memcpy(b->p + at, &v, 4);
}

/* A method frame: begin returns the offset of the size field, end fills it in. */
static inline size_t method_begin(Buf *b, unsigned channel, unsigned class_id, unsigned method_id) {
  put8(b, 1);
  put16(b, channel);
  size_t at = b->len;
  put32(b, 0);
  put16(b, class_id);
  put16(b, method_id);
  return at;
}
static inline void frame_end(Buf *b, size_t at) {
  buf_set32(b, at, (uint32_t)(b->len - at - 4));
  put8(b, 0xCE);
}

#endif
