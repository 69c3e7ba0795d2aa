"""What a table needs and when: health, compaction plans, VACUUM, checks and policies, without I/O."""
