/* The JSON line. */
#include <stdio.h>
#include <sys/resource.h>

#include "amqpload.h"

typedef unsigned long long ull;

static void print_latency(const char *name, const Histogram *h) {
  if (h->n)
    printf("\"%s\":{\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f,\"p99.9\":%.3f,\"max\":%.3f},", name, histogram_ms(h, .5),
           histogram_ms(h, .95), histogram_ms(h, .99), histogram_ms(h, .999), (double)h->max / 1e6);
  else printf("\"%s\":null,", name);
}

static void print_verify(void) {
  uint64_t highest = 0;
  for (int p = 0; p < (int)PRODUCERS_VERIFIED; p++) highest += run.highest[p];
  printf("\"verify\":{\"distinct\":%llu,\"duplicates\":%llu,\"out_of_order\":%llu,\"missing_below_max\":%llu},",
         (ull)run.distinct, (ull)run.duplicates, (ull)run.out_of_order, (ull)(highest - run.distinct));
}

static double per_second(uint64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

void report(void) {
  struct rusage ru;
  uint64_t contiguous = 0, now = now_ns();
  getrusage(RUSAGE_SELF, &ru);
  run.published = 0;
  for (int i = 0; i < conn_count; i++)
    if (conns[i]->role == PRODUCER) {
      run.published += conns[i]->sent;
      if (opt.confirm) contiguous += conns[i]->low_tag - 1;
    }
  if (!run.wall_s && run.t_start) run.wall_s = (double)(now - run.t_start) / 1e9;
  if (!run.publish_s) run.publish_s = run.wall_s;
  if (!run.consume_s && run.t_last) run.consume_s = (double)(run.t_last - run.t_start) / 1e9;
  double window = run.window_end && run.window_end < now ? (double)(run.window_end - run.t_start) / 1e9 : run.wall_s;
  printf("{");
  if (opt.label) printf("\"label\":\"%s\",", opt.label);
  printf("\"published\":%llu,\"published_per_s\":%.0f,\"publish_s\":%.3f,", (ull)run.published,
         per_second(run.published, run.publish_s), run.publish_s);
  printf("\"consumed\":%llu,\"consumed_per_s\":%.0f,\"consume_s\":%.3f,", (ull)run.consumed,
         per_second(run.consumed, run.consume_s), run.consume_s);
  printf("\"consumed_in_window_per_s\":%.0f,\"expected\":%llu,", per_second(run.consumed_in_window, window),
         (ull)run.expected);
  printf("\"confirmed\":%llu,\"confirmed_contiguous\":%llu,\"nacked\":%llu,\"returned\":%llu,\"blocked\":%llu,",
         (ull)run.confirmed, (ull)contiguous, (ull)run.nacked, (ull)run.returned, (ull)run.blocked);
  printf("\"stall_max_s\":%.3f,", (double)run.stall_max_ns / 1e9);
  print_latency("confirm_ms", &run.confirm);
  print_latency("e2e_ms", &run.end_to_end);
  if (opt.verify) print_verify();
  if (opt.delay) printf("\"early\":%llu,", (ull)run.early);
  if (opt.reject) printf("\"rejected\":%llu,", (ull)run.rejected);
  if (opt.until_empty_s > 0) printf("\"empty_s\":%.3f,", run.empty_s);
  if (run.depth_end >= 0) printf("\"depth_end\":%.0f,", run.depth_end);
  printf("\"wall_s\":%.3f,\"reads\":%d,\"writes\":%d,", run.wall_s, run.reads, run.writes);
  printf("\"cpu_s\":%.3f,\"errors\":%d",
         (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) + (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6,
         run.error[0] ? 1 : 0);
  if (run.error[0]) printf(",\"error\":\"%s\"", run.error);
  printf("}\n");
  fflush(stdout);
}
