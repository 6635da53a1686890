"""Every limit of the broker, with its unit and its reason.

Names end in their unit. A limit that a user may change has its default here and its key in
`config.py`. Relations between limits are asserted at the bottom, so that a careless edit fails at import.
"""

from __future__ import annotations

from typing import Final

# --- wire ---------------------------------------------------------------------------------------

# A frame's head (type, channel, size) and its end octet.
FRAME_HEAD_BYTES: Final = 7
FRAME_OVERHEAD_BYTES: Final = 8
# Offered in connection.tune; RabbitMQ's default, and what every client is tuned for.
FRAME_BYTES_MAX: Final = 131_072
# The specification's minimum; a smaller frame_max in tune-ok is refused.
FRAME_BYTES_MIN: Final = 4_096
# Before the client is authenticated a frame may not be larger than this.
PRE_AUTH_FRAME_BYTES_MAX: Final = 8_192
# RabbitMQ's default; a channel costs some 4 KiB.
CHANNELS_MAX: Final = 2_047
# RabbitMQ's default; a peer that is silent for two of them is gone.
HEARTBEAT_S: Final = 60
# A whole handshake, from the first byte to connection.open.
HANDSHAKE_S: Final = 10.0
# Wait for close-ok, or after our own for the client to hang up, before the socket is dropped.
CLOSE_OK_S: Final = 3.0
# A stop waits so long for syncs that are under way. Without an answer it is not a clean one: what was not synced was
# not confirmed. Below the 90 s after which systemd kills.
STOP_SYNC_S: Final = 30.0
# A short string's length is one octet.
SHORT_STRING_BYTES_MAX: Final = 255
# Nested tables and arrays: the decoder is iterative, but what it builds is walked by others.
TABLE_DEPTH_MAX: Final = 32
# Of one table or array: more than any client sends, and decoded in a few milliseconds.
TABLE_ITEMS_MAX: Final = 4_096
# Checked at the content header, before a byte of the body is kept. RabbitMQ 3.13's default is 128 MiB.
MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
# RabbitMQ's limit for expiration, x-message-ttl and x-expires: ten years. The sum with a date still fits 64 bits.
EXPIRATION_MS_MAX: Final = 10 * 365 * 24 * 3600 * 1000

# --- connections ----------------------------------------------------------------------------------

# Connections that have not finished their handshake; each holds at most one small frame. A process that may open few
# files has fewer, and one address at most half of them: see server/descriptors.py.
PRE_AUTH_CONNECTIONS_MAX: Final = 1_024
# Connections that have logged in, each with a descriptor and some 8 KiB.
CONNECTIONS_MAX: Final = 20_000
# A handshake that has taken so long may be cut to make room for another one from its address. A login takes
# milliseconds.
PRE_AUTH_GRACE_S: Final = 1.0
# A line about refused connections is logged so often at most, and so many different ones are told apart.
REFUSALS_LOGGED_S: Final = 10.0
REFUSALS_REMEMBERED_MAX: Final = 256
# Clients that the system keeps until they are accepted, as RabbitMQ has it; so many can be accepted in one turn.
ACCEPT_BACKLOG: Final = 128
# When the system has no descriptor for a new connection, the next one is accepted after this time.
ACCEPT_AGAIN_S: Final = 1.0
# A refused login is answered at once. Its connection ends after this time, and so long the next login of the same user
# from the same address is not looked at, so that guessing passwords is slow.
LOGIN_REFUSED_DELAY_S: Final = 1.0
# Guesses at whatever users that one address has before it is slowed as a whole, and then in each such time.
LOGIN_GUESSES_FREE: Final = 50
LOGIN_GUESSES_PER_DELAY: Final = 10
LOGIN_WAIT_S_MAX: Final = HANDSHAKE_S
# Addresses, and users at addresses, of which is known when they may try again; some 200 bytes each.
LOGIN_GUARD_ENTRIES_MAX: Final = 10_000
# Passwords that are checked at once, each on a thread with 19 MiB for argon2id.
PASSWORD_CHECKS_MAX: Final = 2
# A right password is remembered for so long, as a digest in memory: a client that connects often is checked once.
PASSWORD_REMEMBERED_S: Final = 300.0
PASSWORDS_REMEMBERED_MAX: Final = 10_000
# What may wait in a connection's write buffer before its consumers lose interest, and when they regain it.
WRITE_BUFFER_BYTES_HIGH: Final = 512 * 1024
WRITE_BUFFER_BYTES_LOW: Final = 128 * 1024
# More output than this for a client that does not read, and we do not read from it either. Well above the mark at
# which deliveries stop: a client may be busy sending before it reads again.
OUTPUT_BYTES_MAX: Final = 8 * 1024 * 1024
# What one connection writes in a turn; the rest of a larger output follows in the next ones.
WRITE_BYTES_PER_TURN: Final = 1024 * 1024
# Frames of remembered publish methods per connection (exchange, routing key, targets).
PUBLISH_ROUTES_MAX: Final = 4_096
# Each is told of every change of the channel's credit.
CONSUMERS_PER_CHANNEL_MAX: Final = 10_000
# Queues of one consumer (x-multiqueue): each of them hears when it runs out of credit and when it has some again.
QUEUES_PER_CONSUMER_MAX: Final = 128
# Openings, closings and declarations of one connection: as many at once, and then as many a second. A hundred thousand
# queues can be declared at full speed; a loop that opens and closes channels for ever takes a fifth of a core.
CHURN_BURST: Final = 100_000
CHURN_PER_S: Final = 5_000
# A connection that is too fast for that is not read for so long at a time.
CHURN_PAUSE_S: Final = 0.02
# What a body frame costs besides its octets until the message is whole.
CONTENT_PART_OVERHEAD_BYTES: Final = 48
# Content that one connection may have half-received over all its channels: two of the largest messages, also when
# the smallest frame size was negotiated.
PARTIAL_CONTENT_BYTES_MAX: Final = 2 * (MESSAGE_BYTES_MAX + MESSAGE_BYTES_MAX // 64)

# --- descriptors ------------------------------------------------------------------------------------

# What the process asks the system for at its start: every connection, every file, and room.
DESCRIPTORS_WANTED: Final = 32_768
# Open files of all queues and stores together; a quarter of what the process may have, if that is less.
OPEN_FILES_MAX: Final = 512
# Readers of history, each with a request under way.
HTTP_CONNECTIONS_MAX: Final = 64
# The loop, the listeners, the log, the lock, segments of the journal, checkpoints, PostgreSQL, children.
DESCRIPTORS_OTHERS: Final = 64
# Kept for the store when there are no others. Removing a folder takes one for each level.
DESCRIPTORS_SPARE: Final = 16
# When a consumer looks again at messages that could not be read for lack of descriptors or memory.
STALLED_FETCH_S: Final = 0.05

# --- delivery -------------------------------------------------------------------------------------

# One pull by one consumer: at most this many messages, at most about this many bytes.
PULL_MESSAGES_MAX: Final = 256
PULL_BYTES_MAX: Final = 64 * 1024
# One turn of the scheduler delivers at most this many messages before sockets are read again.
TURN_MESSAGES_MAX: Final = 4_096
# What one connection has sent is handled for so long, then others are. A turn of the scheduler delivers as long.
PARSE_TURN_S: Final = 0.004
# Nor is more than this read of it without a turn for the others: a millisecond or so of copying, for a large body.
READ_BYTES_PER_TURN: Final = 2 * 1024 * 1024
DELIVER_TURN_S: Final = 0.005
# Deliveries that are settled together at once; of more there may be slices.
SETTLE_AT_ONCE: Final = 512
# Stretches of deliveries that go back at once when their time has passed: a few milliseconds, and as much for the look.
LAPSE_AT_ONCE: Final = 2_048
# Of those that are rejected so many at once: a dead letter costs up to 50 µs, an ack less than one.
REJECT_AT_ONCE: Final = 64
# One slice of a settlement of many deliveries: so many messages, or as many as take so long.
SETTLE_MESSAGES_MAX: Final = 4_096
SETTLE_TURN_S: Final = 0.005
# Messages that a purge in slices removes before it looks at the time: about a millisecond, if each is a run of its own.
PURGE_AT_ONCE: Final = 64
# Below this many ready messages per waiting consumer they are dealt one at a time, strictly in turn.
DEAL_SINGLY_BELOW: Final = 8

# --- held messages ----------------------------------------------------------------------------------

# Messages that have come due and are moved on at once; the next ones follow in the next turn.
HELD_RELEASES_PER_TURN: Final = 250
# After many were moved on the next ones wait, a millisecond for every so many, and at most so long: where thousands
# come due each second, they share turns.
HELD_RELEASES_PER_PAUSE_MS: Final = 4
HELD_PAUSE_MS_MAX: Final = 10
# After a start, the due times of what is held are read in slices of so many messages, and of about so many bytes.
HELD_FILL_PER_TURN: Final = 2_000
HELD_FILL_BYTES_PER_TURN: Final = 16 * 1024 * 1024
# One page of a listing of held messages.
HELD_LISTED_MAX: Final = 10_000

# --- moves ----------------------------------------------------------------------------------------------

# Messages of one vhost that are on their way to queues that answer later (PostgreSQL); their bodies are in RAM. Others
# wait at their source, as numbers.
HANDOVER_MESSAGES_MAX: Final = 10_000
HANDOVER_BYTES_MAX: Final = 16 * 1024 * 1024

# --- shelves ----------------------------------------------------------------------------------------

# Messages that a queue keeps on its shelf, to hand them out in an order of its own: 250 to 350 bytes of RAM each. What
# is behind them in the backing is not looked at until there is room.
SHELF_MESSAGES_MAX: Final = 1_000_000
# So many at first, for consumers that find nothing for themselves among them: mostly others free a group meanwhile. As
# long as one of them is still waiting, the shelf grows by so many more, each time after this pause.
SHELF_MESSAGES_AHEAD: Final = 50_000
SHELF_STEP_MESSAGES: Final = 20_000
SHELF_STEP_MS: Final = 50
# Messages that one fetch looks at, and as many that it shelves, or that expire at once; then it is others' turn.
LOOKS_PER_FETCH: Final = 1_000

# --- queues in PostgreSQL -----------------------------------------------------------------------------

# What a node reserves at once for its consumers: so many at first, by then unknown size fewer, and at most.
PG_REFILL_FIRST: Final = 50
PG_REFILL_UNKNOWN: Final = 10
PG_REFILL_MESSAGES_MAX: Final = 2_000
PG_REFILL_BYTES_MAX: Final = 8 * 1024 * 1024
# Messages of one queue that are with consumers and not settled; all of them are in RAM.
PG_PENDING_MESSAGES_MAX: Final = 100_000
PG_PENDING_BYTES_MAX: Final = 256 * 1024 * 1024
# One transaction puts so much at most; a larger message goes alone.
PG_BATCH_ROWS_MAX: Final = 5_000
PG_BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
# With so much waiting to be put, publishers are not read; with so much more, what comes is refused.
PG_OUTBOX_BYTES_HIGH: Final = 32 * 1024 * 1024
PG_OUTBOX_BYTES_MAX: Final = 256 * 1024 * 1024
# So long a publish waits for a database that is down; then its publisher gets a nack.
PG_OUTBOX_WAIT_S: Final = 10.0
# Ids that are settled in one statement.
PG_SETTLE_IDS_MAX: Final = 10_000
# A question to the database (declare, count, look) ends after this time, and so does the method that waits for it.
PG_QUESTION_S: Final = 5.0
# Questions that are asked at once, each on a connection of its own; more of them wait.
PG_QUESTIONS_MAX: Final = 4
# A purge or a deletion of a long queue takes its time; so long at most. It waits for locks no longer than a question.
PG_REMOVAL_S: Final = 600.0
PG_REMOVALS_MAX: Final = 2
# A session that waits for a lock keeps others from it that could have it: so long at a time.
PG_LOCK_MS: Final = 200
# basic.get waits so long for the first look into the database.
PG_GET_S: Final = 5.0
# basic.get waits so long for a large body that is read from the disk.
BODY_READ_S: Final = 60.0

# --- flow -------------------------------------------------------------------------------------------

# A publisher is not read while a queue that it feeds has this many ready messages or bytes more than
# its consumers have taken, as long as they take them at a good pace.
THROTTLE_READY_MESSAGES: Final = 4_096
THROTTLE_READY_BYTES: Final = 4 * 1024 * 1024
RELEASE_READY_MESSAGES: Final = 1_024
# How often a throttled publisher's queues are looked at, and the pace below which it is let go.
THROTTLE_CHECK_S: Final = 0.005
THROTTLE_PACE_MESSAGES: Final = 64
THROTTLE_CHECKS_MAX: Final = 4
# With so much gathered for the disk while a sync is under way or nothing can be written, publishers are not read. A
# batch of this size fits the cache of whoever reads it back, and the reserve on a full disk. With so much more no
# connection is read: what a reject moves is gathered, too. A batch can have 2 GiB.
GATHERED_BYTES_HIGH: Final = 6 * 1024 * 1024
GATHERED_BYTES_MAX: Final = 128 * 1024 * 1024
# How often what expires is looked at meanwhile.
DISK_BEHIND_S: Final = 0.05
# Share of the machine's memory that waiting messages may take before publishers are blocked.
MEMORY_SHARE: Final = 0.4
MEMORY_CHECK_S: Final = 0.1
# What a waiting message costs besides its body. 500,000 messages of 100 bytes with message-ids of their own take 384
# bytes of memory each (the generator of benches/ with --publish-only --unique-ids); equal ones take less.
MESSAGE_OVERHEAD_BYTES: Final = 280
# Larger properties (headers, mostly) are counted besides, as if no message shared them with another.
SMALL_PROPERTIES_BYTES: Final = 256
# What a number of a message costs in a table of such numbers.
NUMBER_OVERHEAD_BYTES: Final = 100
# What a shelf remembers of a message, and a window of deduplication of a key.
SHELVED_OVERHEAD_BYTES: Final = 400
DEDUP_KEY_OVERHEAD_BYTES: Final = 300
# A header by which messages are grouped, replaced or sorted counts up to here; of more, the digest
# counts.
SHELF_KEY_CHARS_MAX: Final = 255
# What definitions cost: a queue that never had a message, an exchange, a binding.
QUEUE_OVERHEAD_BYTES: Final = 1_000
EXCHANGE_OVERHEAD_BYTES: Final = 1_000
BINDING_OVERHEAD_BYTES: Final = 1_500
# What a connection costs, a channel, and deliveries that follow each other and are not acknowledged.
CONNECTION_OVERHEAD_BYTES: Final = 8_192
CHANNEL_OVERHEAD_BYTES: Final = 4_096
UNACKED_OVERHEAD_BYTES: Final = 350
# The share of the memory that half-received content and open transactions may take together, over all connections; one
# message of the largest size always fits. They are not messages yet, and no consumer can make room for others.
PARTIAL_SHARE: Final = 0.5
# So many bytes from clients, and memory is looked at without waiting for the timer.
MEMORY_CHECK_BYTES: Final = 16 * 1024 * 1024
# What a connection remembers of the last message on each of its routes does not include larger properties than this.
REMEMBERED_PROPERTIES_BYTES_MAX: Final = 4_096

# --- names and registries ---------------------------------------------------------------------------

# They are in memory, in every checkpoint, and a start reads them whole.
USERS_MAX: Final = 100_000
PERMISSIONS_MAX: Final = 500_000
VHOSTS_MAX: Final = 10_000

# All of these are in memory and in every checkpoint, and a start reads them whole.
QUEUES_PER_VHOST_MAX: Final = 100_000
EXCHANGES_PER_VHOST_MAX: Final = 100_000
BINDINGS_PER_VHOST_MAX: Final = 1_000_000
# Arguments of one queue, exchange or binding. RabbitMQ takes what fits a frame; nothing that is known needs a tenth of
# this.
ARGUMENTS_BYTES_MAX: Final = 32 * 1024
# What a queue, exchange or binding is counted with besides its names and arguments.
DEFINITION_OVERHEAD_BYTES: Final = 200
# All definitions of a vhost as they are counted: 100,000 queues and a million bindings with names of 50 octets. They
# are in memory, they are in every checkpoint, and a start reads them whole.
DEFINITION_BYTES_PER_VHOST_MAX: Final = 512 * 1024 * 1024
# A longer topic pattern is refused when it is bound; longer routing keys are matched all the same.
TOPIC_WORDS_MAX: Final = 128
# Steps over patterns and exchanges that the routing of one message may take, all its keys together: some ten
# milliseconds. Patterns can be made such that each word of a key meets all of them.
ROUTING_STEPS_MAX: Final = 100_000

# --- audit ------------------------------------------------------------------------------------------

# The files of the audit log together, and one of them: some 200 bytes a record, a million records in all. The oldest
# file goes when there are more.
AUDIT_BYTES_MAX: Final = 256 * 1024 * 1024
AUDIT_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
# Records that wait for the end of the turn; with more they are written at once.
AUDIT_GATHERED_MAX: Final = 1_000
# Records that a broker without a data folder remembers.
AUDIT_RECENT_MAX: Final = 1_000

# --- control socket -----------------------------------------------------------------------------------

# Clients at once; each is a command that a person, or a script, waits for.
CONTROL_CONNECTIONS_MAX: Final = 32
# One request: definitions that are imported are the largest.
CONTROL_REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
# --- policies ---------------------------------------------------------------------------------------

# Policies of a vhost, and as many of operators. Each is asked about the name of each queue that is declared: with all
# of them that takes half a millisecond.
POLICIES_PER_VHOST_MAX: Final = 1_000
# The definition of one policy: one with every key, and long names, is smaller.
POLICY_DEFINITION_BYTES_MAX: Final = 64 * 1024
# Runtime parameters of a vhost, global ones, and one value: shovels and federation upstreams have a few hundred bytes.
PARAMETERS_MAX: Final = 10_000
PARAMETER_VALUE_BYTES_MAX: Final = 64 * 1024

# --- backup ---------------------------------------------------------------------------------------------

# At once, with those that were killed within the last minute: each keeps the broker from removing files.
BACKUPS_MAX: Final = 8
# How long a backup that says nothing keeps them; one that runs renews its lease every few seconds. A disk that takes
# longer for one read is too slow to copy from, and a command that was killed is forgotten soon.
BACKUP_LEASE_S: Final = 60.0

assert FRAME_BYTES_MIN <= FRAME_BYTES_MAX
assert PRE_AUTH_FRAME_BYTES_MAX <= FRAME_BYTES_MAX
assert CONTENT_PART_OVERHEAD_BYTES * 64 <= FRAME_BYTES_MIN - FRAME_OVERHEAD_BYTES
assert CONNECTIONS_MAX + PRE_AUTH_CONNECTIONS_MAX + OPEN_FILES_MAX + HTTP_CONNECTIONS_MAX < DESCRIPTORS_WANTED
assert WRITE_BUFFER_BYTES_LOW < WRITE_BUFFER_BYTES_HIGH
assert RELEASE_READY_MESSAGES < THROTTLE_READY_MESSAGES
assert GATHERED_BYTES_HIGH < GATHERED_BYTES_MAX < 1024**3
assert PULL_MESSAGES_MAX <= TURN_MESSAGES_MAX
assert PG_REFILL_UNKNOWN <= PG_REFILL_FIRST <= PG_REFILL_MESSAGES_MAX
assert PG_BATCH_BYTES_MAX <= PG_OUTBOX_BYTES_HIGH < PG_OUTBOX_BYTES_MAX
assert MESSAGE_BYTES_MAX < 512 * 1024 * 1024
assert AUDIT_FILE_BYTES_MAX <= AUDIT_BYTES_MAX

# Keys that a queue with deduplication remembers at most.
DEDUP_KEYS_MAX: Final = 10_000_000
