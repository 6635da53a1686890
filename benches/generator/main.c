/* The run: set up, the epoll loop, when it is over, clean up. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "amqpload.h"

#define EVENTS 256
#define IDLE_WAIT_NS 100000000ull
#define ACK_WAIT_NS 25000000ull
#define PACED_WAIT_NS 2000000ull
#define DEPTH_WAIT_US 5000
/* Acknowledgements that --ack-every leaves over are sent after this much silence. */
#define ACK_LEFTOVER_NS 50000000ull

Run run = {.depth_end = -1};
Conn **conns;
int conn_count;

static int epoll_fd, window_closed;
static uint64_t produced_at; /* when the last producer was done; 0 before */

uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static double seconds_since(uint64_t then, uint64_t now) { return now > then ? (double)(now - then) / 1e9 : 0; }

static void watch(Conn *c) {
  struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
  fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev);
}

static void connect_all(void) {
  conns = calloc((size_t)(opt.producers + opt.consumers + 1), sizeof *conns);
  for (int i = 0; i < opt.producers; i++) conns[conn_count++] = conn_open(PRODUCER, i);
  for (int i = 0; i < opt.consumers; i++) conns[conn_count++] = conn_open(CONSUMER, i);
  if (opt.reject) conns[conn_count++] = conn_open(REJECTER, 0);
  for (int i = 0; i < opt.producers; i++) producer_setup(conns[i]);
  if (opt.consume_only) run.t_start = now_ns();
  for (int i = opt.producers; i < conn_count; i++) consumer_setup(conns[i]);
  epoll_fd = epoll_create1(0);
  for (int i = 0; i < conn_count; i++) watch(conns[i]);
  if (!run.t_start) run.t_start = now_ns();
  if (opt.seconds > 0) run.window_end = run.t_start + (uint64_t)(opt.seconds * 1e9);
  for (int i = opt.producers; i < conn_count; i++) { /* deliveries that were read during set-up */
    run.t_read = now_ns();
    on_frames(conns[i]);
    if (conns[i]->got) run.t_last = run.t_read;
    if (conns[i]->out.len) flush_out(conns[i]);
  }
}

static void note_produced(uint64_t now) {
  uint64_t last = 0;
  produced_at = now;
  for (int i = 0; i < opt.producers; i++) {
    if (conns[i]->t_done > last) last = conns[i]->t_done;
    run.expected += conns[i]->sent;
  }
  run.publish_s = (double)(last - run.t_start) / 1e9;
  if (opt.fanout) run.expected *= (uint64_t)opt.queues;
}

/* Lets every producer write; true if one of them did something. */
static int pump_all(uint64_t now) {
  int busy = 0, all_done = 1;
  for (int i = 0; i < opt.producers; i++) {
    if (conns[i]->done) continue;
    busy |= producer_pump(conns[i], now);
    if (!conns[i]->done) all_done = 0;
  }
  if (!window_closed && ((run.window_end && now >= run.window_end) || (opt.producers && all_done))) {
    window_closed = 1;
    run.consumed_in_window = run.consumed;
    if (!run.window_end) run.window_end = now;
  }
  if (opt.producers && all_done && !produced_at) note_produced(now);
  return busy;
}

static int finished(uint64_t now) {
  if (opt.no_drain) return now >= run.window_end;
  if (opt.consume_only) {
    if ((opt.count && run.consumed >= opt.count) || (run.window_end && now >= run.window_end)) return 1;
    return seconds_since(run.t_last ? run.t_last : run.t_start, now) > opt.idle_s;
  }
  if (produced_at) {
    if (!opt.consumers || run.consumed >= run.expected) return 1;
    if (seconds_since(run.t_last > produced_at ? run.t_last : produced_at, now) > opt.idle_s) {
      snprintf(run.error, sizeof run.error, "gave up waiting for deliveries: no message for %.1f s", opt.idle_s);
      return 1;
    }
    if (seconds_since(produced_at, now) > opt.drain_max_s) {
      snprintf(run.error, sizeof run.error, "gave up waiting for deliveries after --drain-max %.0f s", opt.drain_max_s);
      return 1;
    }
  } else if (window_closed && seconds_since(run.window_end, now) > opt.drain_max_s) {
    snprintf(run.error, sizeof run.error, "gave up waiting for confirms or the socket after --drain-max %.0f s",
             opt.drain_max_s);
    return 1;
  }
  return 0;
}

/* Sends the acknowledgements that time, not a delivery, makes due; true if some are left. */
static int flush_acks(uint64_t now) {
  int left = 0;
  if (opt.auto_ack && !opt.reject) return 0;
  for (int i = opt.producers; i < conn_count; i++) {
    Conn *c = conns[i];
    if (!c->unacked) continue;
    left = 1;
    if (opt.consume_rate > 0) consumer_ack_paced(c, now);
    else if (now - c->t_last_ack > ACK_LEFTOVER_NS && now > run.t_last && now - run.t_last > ACK_LEFTOVER_NS / 2) {
      consumer_ack_pending(c, now);
      flush_out(c);
    }
  }
  return left;
}

static uint64_t wait_ns(uint64_t now, int acks_left) {
  uint64_t wait = !acks_left ? IDLE_WAIT_NS : opt.consume_rate > 0 ? PACED_WAIT_NS : ACK_WAIT_NS;
  if (run.window_end && !window_closed && run.window_end - now < wait) wait = run.window_end - now;
  if (opt.rate <= 0 || produced_at) return wait;
  for (int i = 0; i < opt.producers; i++) {
    const Conn *c = conns[i];
    if (c->done || !c->writable || (opt.confirm && c->outstanding >= opt.confirm)) continue;
    uint64_t due = producer_due(c), left = due > now ? due - now : 0;
    if (left < wait) wait = left;
  }
  return wait;
}

static void loop(void) {
  struct epoll_event events[EVENTS];
  for (;;) {
    uint64_t now = now_ns();
    int busy = pump_all(now);
    if (finished(now)) return;
    int acks_left = flush_acks(now);
    uint64_t wait = busy ? 0 : wait_ns(now, acks_left);
    struct timespec ts = {(time_t)(wait / 1000000000ull), (long)(wait % 1000000000ull)};
    int n = epoll_pwait2(epoll_fd, events, EVENTS, &ts, NULL);
    for (int i = 0; i < n; i++) {
      Conn *c = events[i].data.ptr;
      if (events[i].events & EPOLLOUT) {
        c->writable = 1;
        if (c->out.len) flush_out(c);
      }
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c);
    }
  }
}

/* A producer that is held back cannot say goodbye: its socket is dropped. */
static void close_all(void) {
  for (int i = 0; i < conn_count; i++) {
    Conn *c = conns[i];
    if (c->role == PRODUCER && (opt.no_drain || c->write_pos != c->write_end)) close(c->fd);
    else conn_close(c);
  }
}

/* Every message published was confirmed, and a drain got what it came for; a run that ends by time excepted. */
static void account(void) {
  uint64_t published = 0;
  if (run.error[0] || opt.no_drain) return;
  for (int i = 0; i < opt.producers; i++) published += conns[i]->sent;
  if (opt.confirm && run.confirmed != published)
    snprintf(run.error, sizeof run.error, "%llu messages published, %llu confirmed, %llu refused",
             (unsigned long long)published, (unsigned long long)run.confirmed, (unsigned long long)run.nacked);
  else if (opt.consume_only && opt.count && run.consumed < opt.count)
    snprintf(run.error, sizeof run.error, "%llu messages wanted, %llu came", (unsigned long long)opt.count,
             (unsigned long long)run.consumed);
}

/* --until-empty: what was published is to go without being consumed. */
static void wait_until_empty(Conn *admin) {
  uint64_t deadline = now_ns() + (uint64_t)(opt.until_empty_s * 1e9);
  while (topology_depth(admin) > 0 && now_ns() < deadline) usleep(DEPTH_WAIT_US);
  uint64_t now = now_ns();
  if (now >= deadline) snprintf(run.error, sizeof run.error, "the queues are not empty after %.0f s", opt.until_empty_s);
  run.empty_s = seconds_since(run.t_start, now);
}

static void finish(Conn *admin) {
  if (opt.until_empty_s > 0) wait_until_empty(admin);
  uint64_t end = now_ns();
  run.wall_s = (double)(end - run.t_start) / 1e9;
  if (!window_closed) run.consumed_in_window = run.consumed;
  if (run.t_last) run.consume_s = (double)(run.t_last - run.t_start) / 1e9;
  for (int i = 0; i < conn_count; i++) {
    if (conns[i]->role == PRODUCER && !conns[i]->done) producer_note_write(conns[i], end);
    if (conns[i]->role != PRODUCER && !opt.no_drain) consumer_ack_pending(conns[i], end);
  }
  account();
  close_all();
  if (opt.delete_after) topology_delete(admin);
  else run.depth_end = (double)topology_depth(admin);
  conn_close(admin);
  report();
}

int main(int argc, char **argv) {
  options_parse(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  if (opt.sync_rate) {
    sync_rate();
    return 0;
  }
  if (opt.churn) {
    churn();
    report();
    return 0;
  }
  if (opt.verify) verify_setup();
  Conn *admin = conn_open(ADMIN, 0);
  if (opt.depth) {
    printf("{\"depth\":%llu}\n", (unsigned long long)topology_depth(admin));
    conn_close(admin);
    return 0;
  }
  if (!opt.no_declare) topology_declare(admin);
  if (opt.purge || (!opt.publish_only && !opt.consume_only && !opt.no_declare)) topology_purge(admin);
  if (opt.rpc) {
    rpc();
    if (opt.delete_after) topology_delete(admin);
    conn_close(admin);
    report();
    return run.error[0] ? 2 : 0;
  }
  connect_all();
  loop();
  finish(admin);
  return run.error[0] ? 2 : 0;
}
