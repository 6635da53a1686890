/* A log-linear histogram of nanoseconds: 64 steps per power of two, so every percentile is within 1.6 %. */
#ifndef AMQPLOAD_HISTOGRAM_H
#define AMQPLOAD_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS 64

typedef struct {
  uint64_t count[64 * HISTOGRAM_STEPS], n, max;
} Histogram;

static inline void histogram_add(Histogram *h, uint64_t ns) {
  unsigned i = (unsigned)ns;
  if (ns > h->max) h->max = ns;
  if (ns >= HISTOGRAM_STEPS) {
    unsigned e = 63 - (unsigned)__builtin_clzll(ns); /* at least 6 */
    i = (e - 5) * HISTOGRAM_STEPS + (unsigned)((ns >> (e - 6)) & (HISTOGRAM_STEPS - 1));
  }
  h->count[i]++;
  h->n++;
}

/* The quantile q in milliseconds, or -1 without a sample. */
static inline double histogram_ms(const Histogram *h, double q) {
  if (!h->n) return -1;
  uint64_t want = (uint64_t)(q * (double)h->n), sum = 0;
  if (want >= h->n) want = h->n - 1;
  for (unsigned i = 0; i < 64 * HISTOGRAM_STEPS; i++) {
    sum += h->count[i];
    if (sum <= want) continue;
    if (i < HISTOGRAM_STEPS) return i / 1e6;
    unsigned e = i / HISTOGRAM_STEPS + 5;
    double low = (double)((1ull << e) | ((uint64_t)(i % HISTOGRAM_STEPS) << (e - 6)));
    return (low + (double)(1ull << (e - 6)) / 2) / 1e6;
  }
  return (double)h->max / 1e6;
}

#endif
