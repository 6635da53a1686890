"""Large bodies, kept once for all queues: records, their files, compaction."""
