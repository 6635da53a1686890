/* The command line. */
#include <getopt.h>
#include <stdio.h>

#include "amqpload.h"

Options opt = {.host = "127.0.0.1", .port = "5672", .user = "guest", .password = "guest", .vhost = "/",
               .prefix = "amqpload", .producers = 1, .consumers = 1, .queues = 1, .size = 100, .ack_every = 1,
               .batch = 65536, .idle_s = 3.0, .drain_max_s = 60.0};

static void usage(int status) {
  fprintf(status ? stderr : stdout,
          "usage: amqpload [options]\n"
          "  --host H --port P --user U --password P --vhost V\n"
          "  --producers N --consumers N --queues N   producer/consumer i uses queue i mod N\n"
          "  --prefix NAME        queue name prefix (queues are NAME-0, NAME-1, ...)\n"
          "  --size BYTES         body size (16 or more)\n"
          "  --size-spread N      body sizes vary evenly over SIZE-N..SIZE+N\n"
          "  --unique-ids         a message-id of 32 digits in each message\n"
          "  --properties FILE    property flags and list as they are in FILE; 32 times @ is an id of each message\n"
          "  --persistent         delivery-mode 2 (not with --properties, which have their own)\n"
          "  --durable            durable queues (and exchange)\n"
          "  --queue-arg K=V      queue argument; integer when numeric; may repeat\n"
          "  --confirm WINDOW     publisher confirms, at most WINDOW outstanding per producer\n"
          "  --ack-every N        manual acknowledgement, multiple=true every N (1: one by one)\n"
          "  --auto-ack           no-ack consumers\n"
          "  --prefetch N         basic.qos prefetch-count\n"
          "  --seconds S          produce for S seconds (consume-only: consume for S seconds)\n"
          "  --count N            messages per producer (consume-only: total to consume; fewer is an error)\n"
          "  --rate R             total target publish rate (0: flat out)\n"
          "  --consume-rate R     all consumers together acknowledge R messages a second (needs --prefetch)\n"
          "  --fanout             publish to a fanout exchange bound to all queues\n"
          "  --topic KEYS         publish to a topic exchange, with KEYS routing keys in turn (at most 4096)\n"
          "  --publish-only | --consume-only\n"
          "  --priorities N       message priority cycles through 0..N-1\n"
          "  --cycle NAME=N       a header NAME whose text cycles through N values\n"
          "  --delay LOW-HIGH     publish to an x-delayed-message exchange, x-delay is random within these milliseconds;\n"
          "                       end-to-end latency then counts from when a message is due\n"
          "  --dead-letters       publish to NAME-source, which has the --queue-args and whose dead letters go to NAME-0\n"
          "  --reject             with --dead-letters: one more consumer rejects what comes to NAME-source\n"
          "  --rpc N              N clients ask for --seconds, each waits for its answer; one server answers (--size up\n"
          "                       to 65536)\n"
          "  --churn              connections, channels, exchanges, queues, bindings and replies made and dropped, one cycle\n"
          "                       after the other, for --seconds or --count cycles\n"
          "  --mandatory          set the mandatory flag\n"
          "  --batch BYTES        bytes per publish write (65536)\n"
          "  --purge --delete     purge queues first / delete queues afterwards\n"
          "  --no-declare         queues exist already\n"
          "  --no-drain           stop when the time is over, whatever is still queued or held back\n"
          "  --depth              only print the queues' message counts\n"
          "  --verify             check sequence numbers at the consumers\n"
          "  --sync-rate FOLDER   no broker: append SIZE bytes to a file there and fdatasync, again for --seconds\n"
          "  --until-empty S      then wait until the queues are empty, at most S seconds\n"
          "  --idle S             consume-only/drain: stop after S seconds without a message (3)\n"
          "  --drain-max S        wait at most S seconds for the consumers after producing (60)\n"
          "  --label TEXT         copied to the output\n");
  exit(status);
}

enum { TEXT, INTEGER, UNSIGNED, REAL, FLAG, COUNT, QUEUE_ARG };

typedef struct {
  const char *name;
  int kind;
  void *into;
} Spec;

static const Spec specs[] = {
    {"host", TEXT, &opt.host}, {"port", TEXT, &opt.port}, {"user", TEXT, &opt.user},
    {"password", TEXT, &opt.password}, {"vhost", TEXT, &opt.vhost}, {"prefix", TEXT, &opt.prefix},
    {"label", TEXT, &opt.label}, {"sync-rate", TEXT, &opt.sync_rate}, {"properties", TEXT, &opt.properties},
    {"producers", INTEGER, &opt.producers}, {"consumers", INTEGER, &opt.consumers},
    {"queues", INTEGER, &opt.queues}, {"priorities", INTEGER, &opt.priorities}, {"size", UNSIGNED, &opt.size},
    {"size-spread", UNSIGNED, &opt.size_spread}, {"confirm", UNSIGNED, &opt.confirm},
    {"ack-every", UNSIGNED, &opt.ack_every}, {"prefetch", UNSIGNED, &opt.prefetch},
    {"topic", UNSIGNED, &opt.topic_keys}, {"batch", UNSIGNED, &opt.batch}, {"seconds", REAL, &opt.seconds},
    {"rate", REAL, &opt.rate}, {"consume-rate", REAL, &opt.consume_rate}, {"idle", REAL, &opt.idle_s},
    {"drain-max", REAL, &opt.drain_max_s}, {"count", COUNT, &opt.count}, {"queue-arg", QUEUE_ARG, NULL},
    {"unique-ids", FLAG, &opt.unique_ids}, {"persistent", FLAG, &opt.persistent}, {"durable", FLAG, &opt.durable},
    {"auto-ack", FLAG, &opt.auto_ack}, {"fanout", FLAG, &opt.fanout}, {"publish-only", FLAG, &opt.publish_only},
    {"consume-only", FLAG, &opt.consume_only}, {"mandatory", FLAG, &opt.mandatory}, {"purge", FLAG, &opt.purge},
    {"delete", FLAG, &opt.delete_after}, {"no-declare", FLAG, &opt.no_declare}, {"no-drain", FLAG, &opt.no_drain},
    {"cycle", TEXT, &opt.cycle}, {"delay", TEXT, &opt.delay}, {"dead-letters", FLAG, &opt.dead_letters},
    {"reject", FLAG, &opt.reject}, {"rpc", INTEGER, &opt.rpc}, {"churn", FLAG, &opt.churn},
    {"until-empty", REAL, &opt.until_empty_s},
    {"depth", FLAG, &opt.depth}, {"verify", FLAG, &opt.verify}, {"help", FLAG, &opt.help},
};
#define SPEC_COUNT (sizeof specs / sizeof *specs)

static void take(const Spec *s, char *value) {
  switch (s->kind) {
  case TEXT: *(const char **)s->into = value; break;
  case INTEGER: *(int *)s->into = atoi(value); break;
  case UNSIGNED: *(unsigned *)s->into = (unsigned)strtoul(value, NULL, 10); break;
  case REAL: *(double *)s->into = atof(value); break;
  case COUNT: *(uint64_t *)s->into = strtoull(value, NULL, 10); break;
  case FLAG: *(int *)s->into = 1; break;
  default:
    if (opt.queue_arg_count == QUEUE_ARGS_MAX || !strchr(value, '=')) usage(1);
    opt.queue_args[opt.queue_arg_count++] = value;
  }
}

static void refuse(const char *why) {
  fprintf(stderr, "amqpload: %s\n", why);
  exit(1);
}

static void parse_cycle(void) {
  const char *equals = strchr(opt.cycle, '=');
  opt.cycle_values = equals ? strtoull(equals + 1, NULL, 10) : 0;
  if (!opt.cycle_values || opt.cycle_values > 100000) refuse("--cycle NAME=N, N from 1 to 100000");
}

static void parse_delay(void) {
  char *end;
  opt.delay_low = strtoull(opt.delay, &end, 10);
  opt.delay_high = *end == '-' ? strtoull(end + 1, &end, 10) : 0;
  if (*end || !opt.delay_high || opt.delay_high < opt.delay_low) refuse("--delay LOW-HIGH, in milliseconds");
}

static void options_check(void) {
  if (opt.publish_only && opt.consume_only) refuse("--publish-only and --consume-only exclude each other");
  if (opt.queues < 1 || opt.producers < 0 || opt.consumers < 0) refuse("a negative count, or no queue");
  if (opt.size < STAMP_BYTES + opt.size_spread) refuse("a body has at least 16 bytes (--size minus --size-spread)");
  if (opt.topic_keys > SLOTS_MAX) refuse("at most 4096 topic keys");
  if (!!opt.topic_keys + !!opt.fanout + !!opt.delay + !!opt.dead_letters > 1)
    refuse("--topic, --fanout, --delay and --dead-letters exclude each other");
  if (opt.cycle) parse_cycle();
  if (opt.delay) parse_delay();
  if (opt.dead_letters && opt.queues > 1) refuse("--dead-letters has one queue");
  if (opt.reject && !opt.dead_letters) refuse("--reject needs --dead-letters");
  if (opt.until_empty_s > 0 && !opt.publish_only) refuse("--until-empty needs --publish-only");
  if (opt.topic_keys && opt.topic_keys < (unsigned)opt.queues) refuse("fewer topic keys than queues");
  if (opt.consume_rate > 0 && (opt.auto_ack || !opt.prefetch)) refuse("--consume-rate needs --prefetch and acks");
  if (!opt.depth && !opt.count && opt.seconds <= 0) refuse("give --seconds or --count");
  if (opt.sync_rate && opt.seconds <= 0) refuse("--sync-rate needs --seconds");
  if (opt.no_drain && opt.seconds <= 0) refuse("--no-drain needs --seconds");
  if (opt.publish_only) opt.consumers = 0;
  if (opt.consume_only) opt.producers = 0;
  if (!opt.fanout && opt.consumers && opt.consumers < opt.queues && opt.consumers < opt.producers)
    fprintf(stderr, "amqpload: warning: some queues have no consumer\n");
}

void options_parse(int argc, char **argv) {
  struct option table[SPEC_COUNT + 1] = {0};
  int o, at = 0;
  for (size_t i = 0; i < SPEC_COUNT; i++)
    table[i] = (struct option){specs[i].name, specs[i].kind != FLAG, NULL, 'o'};
  while ((o = getopt_long(argc, argv, "", table, &at)) == 'o') take(&specs[at], optarg);
  if (opt.help) usage(0);
  if (o != -1 || optind != argc) usage(1);
  options_check();
}
