/* One AMQP connection with one channel: handshake, synchronous calls, close, and what a broker says when it refuses. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "amqpload.h"

void die(int status, const char *format, const char *detail) {
  if (!run.error[0]) {
    snprintf(run.error, sizeof run.error, format, detail ? detail : "");
    run.exit_status = status;
  }
  fprintf(stderr, "amqpload: %s\n", run.error);
  report();
  exit(run.exit_status);
}

static void die_closed(const Conn *c, const char *what, const uint8_t *args, size_t n) {
  static const char *const roles[] = {"admin", "producer", "consumer", "rejecter"};
  char text[256] = "", message[560];
  unsigned code = 0, class_id = 0, method_id = 0;
  if (n >= 3) {
    size_t len = args[2];
    code = get16(args);
    if (3 + len + 4 <= n) {
      memcpy(text, args + 3, len);
      class_id = get16(args + 3 + len);
      method_id = get16(args + 5 + len);
    }
  }
  for (char *q = text; *q; q++)
    if (*q == '"' || *q == '\\' || (unsigned char)*q < 32) *q = '\'';
  snprintf(message, sizeof message, "%s closed by broker (%s %d): %u %s (class %u method %u)", what,
           roles[c->role], c->index, code, text, class_id, method_id);
  die(2, "%s", message);
}

void check_close(const Conn *c, const uint8_t *frame, size_t len) {
  if (frame[0] != 1 || len < 12) return;
  unsigned class_id = get16(frame + 7), method_id = get16(frame + 9);
  if (class_id == 10 && method_id == 50) die_closed(c, "connection", frame + 11, len - 12);
  if (class_id == 20 && method_id == 40) die_closed(c, "channel", frame + 11, len - 12);
}

void flush_sync(Conn *c) {
  while (c->out_pos < c->out.len) {
    ssize_t w = write(c->fd, c->out.p + c->out_pos, c->out.len - c->out_pos);
    if (w >= 0) c->out_pos += (size_t)w;
    else if (errno == EAGAIN) usleep(200);
    else if (errno != EINTR) die(3, "connection lost while writing: %s", strerror(errno));
  }
  c->out.len = c->out_pos = 0;
}

/* Writes what the socket takes; the rest waits for its EPOLLOUT edge, and errors surface in read. */
void flush_out(Conn *c) {
  while (c->out_pos < c->out.len) {
    ssize_t w = write(c->fd, c->out.p + c->out_pos, c->out.len - c->out_pos);
    run.writes++;
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) return;
    c->out_pos += (size_t)w;
  }
  c->out.len = c->out_pos = 0;
}

/* The whole length of the frame at pos, or 0 when it has not arrived. */
size_t frame_at(const Conn *c, size_t pos) {
  if (c->in_len - pos < 7) return 0;
  size_t n = (size_t)get32(c->in + pos + 3) + 8;
  if (n > READ_BUFFER) die(3, "broker sent a frame larger than the read buffer%s", "");
  return c->in_len - pos < n ? 0 : n;
}

static void read_sync(Conn *c) {
  ssize_t r = read(c->fd, c->in + c->in_len, READ_BUFFER - c->in_len);
  if (r < 0 && errno == EINTR) return;
  if (r < 0) die(3, "connection lost during set-up: %s", strerror(errno));
  if (r == 0) die(3, "broker closed the socket during set-up (refused credentials or vhost?)%s", "");
  c->in_len += (size_t)r;
  if (c->in_len >= 4 && !memcmp(c->in, "AMQP", 4)) die(3, "broker refused the AMQP 0-9-1 protocol header%s", "");
}

/* Waits for a method and returns a copy of its arguments; other frames before it are dropped. */
uint8_t *expect(Conn *c, unsigned class_id, unsigned method_id) {
  uint8_t *args = NULL;
  while (!args) {
    size_t n = frame_at(c, 0);
    if (!n) {
      read_sync(c);
      continue;
    }
    check_close(c, c->in, n);
    if (c->in[0] == 1 && get16(c->in + 7) == class_id && get16(c->in + 9) == method_id) {
      args = malloc(n - 11);
      memcpy(args, c->in + 11, n - 12);
    }
    memmove(c->in, c->in + n, c->in_len - n);
    c->in_len -= n;
  }
  return args;
}

/* Sends the method begun at method_at and waits for its answer. */
void call(Conn *c, size_t method_at, unsigned class_id, unsigned method_id) {
  frame_end(&c->out, method_at);
  flush_sync(c);
  free(expect(c, class_id, method_id));
}

static int connect_socket(void) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *a;
  int failure = 0, fd = -1, one = 1;
  int rc = getaddrinfo(opt.host, opt.port, &hints, &found);
  if (rc) die(1, "cannot resolve host: %s", gai_strerror(rc));
  for (a = found; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0) continue;
    if (connect(fd, a->ai_addr, a->ai_addrlen)) {
      failure = errno;
      close(fd);
      fd = -1;
    }
  }
  freeaddrinfo(found);
  if (fd < 0) die(1, "cannot connect: %s", strerror(failure));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void put_start_ok(Buf *b) {
  static const char *const capabilities[] = {"publisher_confirms", "basic.nack", "connection.blocked",
                                             "consumer_cancel_notify", "authentication_failure_close"};
  char response[256];
  size_t user = strlen(opt.user), password = strlen(opt.password);
  if (user + password + 2 > sizeof response) die(1, "credentials too long%s", "");
  size_t at = method_begin(b, 0, 10, 11), table = b->len;
  put32(b, 0);
  put_short_string(b, "product");
  put8(b, 'S');
  put_long_string(b, "amqpload", 8);
  put_short_string(b, "capabilities");
  put8(b, 'F');
  size_t inner = b->len;
  put32(b, 0);
  for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) {
    put_short_string(b, capabilities[i]);
    put8(b, 't');
    put8(b, 1);
  }
  buf_set32(b, inner, (uint32_t)(b->len - inner - 4));
  buf_set32(b, table, (uint32_t)(b->len - table - 4));
  put_short_string(b, "PLAIN");
  response[0] = 0;
  memcpy(response + 1, opt.user, user);
  response[1 + user] = 0;
  memcpy(response + 2 + user, opt.password, password);
  put_long_string(b, response, user + password + 2);
  put_short_string(b, "en_US");
  frame_end(b, at);
}

Conn *conn_open(int role, int index) {
  Conn *c = calloc(1, sizeof *c);
  Buf *b = &c->out;
  c->role = role;
  c->index = index;
  c->in = malloc(READ_BUFFER);
  c->fd = connect_socket();
  put_raw(b, "AMQP\0\0\x09\x01", 8);
  flush_sync(c);
  free(expect(c, 10, 10)); /* connection.start */
  put_start_ok(b);
  flush_sync(c);
  uint8_t *tune = expect(c, 10, 30); /* channel-max, frame-max, heartbeat */
  unsigned channel_max = get16(tune);
  c->frame_max = get32(tune + 2);
  free(tune);
  if (!c->frame_max || c->frame_max > FRAME_MAX) c->frame_max = FRAME_MAX;
  size_t at = method_begin(b, 0, 10, 31); /* tune-ok, without heartbeats */
  put16(b, channel_max);
  put32(b, c->frame_max);
  put16(b, 0);
  frame_end(b, at);
  at = method_begin(b, 0, 10, 40); /* connection.open */
  put_short_string(b, opt.vhost);
  put_short_string(b, "");
  put8(b, 0);
  call(c, at, 10, 41);
  at = method_begin(b, 1, 20, 10); /* channel.open */
  put_short_string(b, "");
  call(c, at, 20, 11);
  return c;
}

/* Drops whole frames from the read buffer; true once connection.close-ok was among them. */
static int discard_frames(Conn *c) {
  size_t n, pos = 0;
  int close_ok = 0;
  while ((n = frame_at(c, pos))) {
    const uint8_t *f = c->in + pos;
    if (f[0] == 1 && n >= 12 && get16(f + 7) == 10 && get16(f + 9) == 51) close_ok = 1;
    pos += n;
  }
  memmove(c->in, c->in + pos, c->in_len - pos);
  c->in_len -= pos;
  return close_ok;
}

void conn_close(Conn *c) {
  struct timeval patience = {10, 0};
  if (c->closed) return;
  c->closed = 1;
  fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) & ~O_NONBLOCK);
  setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  size_t at = method_begin(&c->out, 0, 10, 50);
  put16(&c->out, 200);
  put_short_string(&c->out, "bye");
  put32(&c->out, 0);
  frame_end(&c->out, at);
  flush_sync(c);
  while (!discard_frames(c)) {
    ssize_t r = read(c->fd, c->in + c->in_len, READ_BUFFER - c->in_len);
    if (r <= 0) break;
    c->in_len += (size_t)r;
  }
  close(c->fd);
}
