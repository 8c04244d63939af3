"""The progressive-validation loop: one partition, all partitions of a process, and the handover of partitions."""
