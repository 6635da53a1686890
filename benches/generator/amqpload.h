/* amqpload - a cheap AMQP 0-9-1 load generator.
 *
 * One thread, one epoll loop, no client library: publishes are encoded before
 * the run (method + header + body frames) and written many per system call;
 * deliveries are parsed in place from one large read buffer and acknowledged
 * with multiple=true. It exists so that the load generator is not the
 * bottleneck on a machine that it shares with the broker under test.
 *
 * A body starts with: bytes 0..7 send time (CLOCK_MONOTONIC ns, big endian;
 * with --rate the *intended* send time, so that a broker that stalls cannot
 * hide its stall; with --delay the time at which the message is due), 8..9
 * producer number, 10..15 sequence number.
 *
 * Prints ONE JSON line on stdout. Exit status: 0 ok, 1 usage or set-up error,
 * 2 the broker closed a connection or channel, or did not deliver everything,
 * 3 connection lost.
 */
#ifndef AMQPLOAD_H
#define AMQPLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "histogram.h"

#define FRAME_MAX 131072u
#define READ_BUFFER (512u * 1024u)
#define QUEUE_ARGS_MAX 16
#define SLOTS_MAX 4096u
/* --verify keeps a bitmap for each producer up to this number. */
#define PRODUCERS_VERIFIED 4096u
/* A body carries its send time, producer and sequence number. */
#define STAMP_BYTES 16u
#define MESSAGE_ID_DIGITS 32u
/* Where --properties has so many of these in a row there is an id, at most so many in a message. */
#define ID_MARK '@'
#define IDS_MAX 8u
#define CYCLE_DIGITS 8u
/* The index of the queue in front of the others, whose dead letters they get (--dead-letters). */
#define SOURCE (-1)

typedef struct {
  const char *host, *port, *user, *password, *vhost, *prefix, *label, *sync_rate, *properties;
  int producers, consumers, queues;
  unsigned size, size_spread, ack_every, prefetch, confirm, batch, topic_keys;
  int persistent, auto_ack, fanout, publish_only, consume_only, durable;
  int purge, delete_after, depth, verify, no_declare, mandatory, unique_ids, no_drain, help;
  int priorities, dead_letters, reject, rpc, churn;
  const char *cycle, *delay;       /* as they were given: NAME=N and LOW-HIGH */
  uint64_t cycle_values;           /* --cycle: how many; 0: no such header */
  uint64_t delay_low, delay_high;  /* --delay, milliseconds; both 0: not delayed */
  double seconds, rate, consume_rate, idle_s, drain_max_s, until_empty_s;
  uint64_t count;
  char *queue_args[QUEUE_ARGS_MAX];
  int queue_arg_count;
} Options;

enum { ADMIN, PRODUCER, CONSUMER, REJECTER };

/* One pre-encoded message in a producer's batch buffer. */
typedef struct {
  /* Offsets in the buffer, 0 where there is no such thing: first byte, body, and what differs in each message. */
  size_t at, body, ids[IDS_MAX], priority, cycle, delay;
  unsigned size; /* of the body */
} Slot;

typedef struct {
  int fd, role, index, closed;
  uint32_t frame_max;
  uint8_t *in;
  size_t in_len;
  Buf out; /* small control output: acks, set-up methods */
  size_t out_pos;
  /* producer */
  Buf batch;
  Slot *slots; /* slot_count + 1 of them: the last one marks the end of the buffer */
  unsigned slot_count, slots_per_write, next_slot;
  size_t write_end, write_pos;
  int writable, done;
  uint64_t sent, target, next_tag, low_tag, outstanding;
  char address[256]; /* --rpc: where the answer goes */
  size_t address_bytes;
  uint64_t *ring, ring_mask; /* send time by delivery tag; 0 once confirmed */
  double per_ns, phase; /* --rate: messages per ns, and how far the first one is ahead of the other producers' */
  uint64_t t_done, t_last_write;
  /* consumer */
  uint64_t got, last_tag, acked_tag, unacked, t_last_ack, body_left;
  int want_first;
} Conn;

/* What the run has counted so far. */
typedef struct {
  Histogram confirm, end_to_end;
  uint64_t published, consumed, confirmed, nacked, returned, blocked, expected, rejected, early;
  uint64_t t_start, t_last, t_read, window_end, consumed_in_window, stall_max_ns;
  double publish_s, consume_s, wall_s, depth_end, empty_s;
  uint64_t distinct, duplicates, out_of_order;
  uint64_t *highest; /* --verify: by producer, highest sequence number + 1 */
  int reads, writes, exit_status;
  char error[600];
} Run;

extern Options opt;
extern Run run;
extern Conn **conns;
extern int conn_count;

uint64_t now_ns(void);

/* options.c */
void options_parse(int argc, char **argv);

/* connection.c */
void die(int status, const char *format, const char *detail);
void check_close(const Conn *c, const uint8_t *frame, size_t len);
void flush_sync(Conn *c);
void flush_out(Conn *c);
size_t frame_at(const Conn *c, size_t pos);
uint8_t *expect(Conn *c, unsigned class_id, unsigned method_id);
void call(Conn *c, size_t method_at, unsigned class_id, unsigned method_id);
Conn *conn_open(int role, int index);
void conn_close(Conn *c);

/* topology.c */
void queue_name(char *s, size_t n, int index);
void exchange_name(char *s, size_t n);
void routing_key(char *s, size_t n, unsigned key);
uint64_t queue_declare(Conn *c, int index, int passive);
void topology_declare(Conn *c);
void topology_purge(Conn *c);
void topology_delete(Conn *c);
uint64_t topology_depth(Conn *c);

/* producer.c */
void producer_setup(Conn *c);
int producer_pump(Conn *c, uint64_t now);
uint64_t producer_due(const Conn *c);
void producer_note_write(Conn *c, uint64_t now);
void on_confirm(Conn *c, uint64_t tag, int multiple, uint64_t now, int nack);

/* consumer.c */
void verify_setup(void);
void consumer_setup(Conn *c);
void consumer_ack_pending(Conn *c, uint64_t now);
void consumer_ack_paced(Conn *c, uint64_t now);
void on_frames(Conn *c);
void on_readable(Conn *c);

/* sync_rate.c */
void sync_rate(void);

/* report.c */
void report(void);
void rpc(void);
void churn(void);

#endif
