/* --sync-rate: what the disk can do. One file, append SIZE bytes, fdatasync, again. No broker takes part. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "amqpload.h"

/* An unlinked file in the folder: nothing is left behind, however this ends. */
static int scratch_file(void) {
  char path[4096];
  if ((size_t)snprintf(path, sizeof path, "%s/sync-rate-XXXXXX", opt.sync_rate) >= sizeof path)
    die(1, "the path is too long: %s", opt.sync_rate);
  int fd = mkstemp(path);
  if (fd < 0) die(1, "cannot make a file there: %s", strerror(errno));
  unlink(path);
  return fd;
}

void sync_rate(void) {
  static Histogram took;
  uint64_t n = 0, start, end, now;
  uint8_t *bytes = malloc(opt.size);
  int fd = scratch_file();
  memset(bytes, 'x', opt.size);
  start = now = now_ns();
  end = start + (uint64_t)(opt.seconds * 1e9);
  while (now < end) {
    uint64_t before = now;
    if (write(fd, bytes, opt.size) != (ssize_t)opt.size) die(1, "cannot write: %s", strerror(errno));
    if (fdatasync(fd)) die(1, "cannot sync: %s", strerror(errno));
    now = now_ns();
    histogram_add(&took, now - before);
    n++;
  }
  close(fd);
  free(bytes);
  printf("{\"syncs\":%llu,\"syncs_per_s\":%.0f,\"sync_ms\":{\"p50\":%.3f,\"p99\":%.3f}}\n", (unsigned long long)n,
         (double)n * 1e9 / (double)(now - start), histogram_ms(&took, .5), histogram_ms(&took, .99));
}
